package cli

import (
	"time"

	"turnkeeper/internal/words"
)

// A clock tells times to people, in one zone and from one moment.
type clock struct {
	now  time.Time
	zone *time.Location
}

// at is a time as a table shows it: what the clock showed and how long ago
// that was. The zero time is a dash.
func (c clock) at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return c.moment(t) + " (" + c.ago(t) + ")"
}

// moment is a time by the clock, with its date unless that is today's.
func (c clock) moment(t time.Time) string {
	t, now := t.In(c.zone), c.now.In(c.zone)
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04")
}

// ago is how long a time is past, or ahead: "3 min ago", "in 12 s".
func (c clock) ago(t time.Time) string { return words.Ago(c.now, t) }

// coarse is a duration in its largest unit.
func coarse(d time.Duration) string { return words.Coarse(d) }

// exact is a duration with about three digits.
func exact(d time.Duration) string { return words.Exact(d) }
