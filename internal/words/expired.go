package words

import (
	"time"

	"turnkeeper"
)

// Expired returns a sentence for each class of what was stored of a turn that retention has deleted.
func Expired(t turnkeeper.Turn, outputs []turnkeeper.Output, moment func(time.Time) string) (all []string) {
	var gone time.Time
	for _, o := range outputs {
		if o.ExpiredAt.After(gone) {
			gone = o.ExpiredAt
		}
	}
	for _, class := range []struct {
		what string
		at   time.Time
	}{{"outputs: their content was", gone}, {"events: all but the last were", t.EventsExpiredAt},
		{"leases: the log of ended dispatches was", t.LeasesExpiredAt}} {
		if !class.at.IsZero() {
			all = append(all, class.what+" deleted by retention at "+moment(class.at))
		}
	}
	return all
}

// ExpiredOutput returns a sentence that says why the content of an output cannot be read.
func ExpiredOutput(o turnkeeper.Output, moment func(time.Time) string) string {
	return "expired: the content of output " + string(o.ID) + " was deleted by retention at " + moment(o.ExpiredAt)
}
