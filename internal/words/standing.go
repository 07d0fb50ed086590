package words

import (
	"fmt"
	"strings"
	"time"

	"turnkeeper"
)

// SilentFor describes a silent or stopped worker, for a list.
func SilentFor(s turnkeeper.Silence) string {
	if s.Stopped {
		return "worker stopped"
	}
	return "worker silent for " + Coarse(s.For)
}

// UnderWay says what a running turn is doing.
func UnderWay(u turnkeeper.UnderWay) string {
	switch {
	case u.RefusedFor > 0:
		return "waits for the database: " + Refusing(u.RefusedFor, u.RefusedTimes, u.RefusedCode)
	case len(u.Calls) > 0:
		var names []string
		for _, c := range u.Calls {
			if len(names) == 3 {
				names = append(names, fmt.Sprintf("%d more", len(u.Calls)-3))
				break
			}
			names = append(names, Brief(c.Name, 40))
		}
		return "runs " + strings.Join(names, ", ")
	case u.OutputTokens > 0:
		return fmt.Sprintf("round %d streams, ~%s so far", u.Round, Plural(int(u.OutputTokens), "token"))
	default:
		return fmt.Sprintf("asks a model for round %d", u.Round)
	}
}

// Doing says, for a list, what an open turn does or waits for. It returns "" if the state says it all. ago formats a
// time relative to now.
func Doing(t turnkeeper.Turn, ago func(time.Time) string) string {
	switch {
	case t.Silence != nil:
		return SilentFor(*t.Silence)
	case t.UnderWay != nil:
		return UnderWay(*t.UnderWay)
	case t.State == turnkeeper.TurnQueued && !t.DueAt.IsZero():
		return "deferred, due " + ago(t.DueAt)
	default:
		return ""
	}
}
