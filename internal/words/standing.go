package words

import (
	"fmt"
	"strings"

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

// Doing says, for a list, what a running turn does, or that its worker is silent; "" for any other turn.
func Doing(t turnkeeper.Turn) string {
	switch {
	case t.Silence != nil:
		return SilentFor(*t.Silence)
	case t.UnderWay != nil:
		return UnderWay(*t.UnderWay)
	default:
		return ""
	}
}
