package words

import (
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
)

// Standing returns the status of a message for a list. state is the message's state, or the outcome if it is answered.
// note says what an open message waits for; it is "" if that is only its lane or the next tick. ago formats a time
// relative to now.
func Standing(m waiting.Message, ago func(time.Time) string) (state, note string) {
	state = string(m.State)
	if m.State == turnkeeper.MessageAnswered && m.Outcome != "" {
		return string(m.Outcome), ""
	}
	for _, w := range m.Waits {
		switch w.Reason {
		case waiting.ModelDown:
			return state, "for " + Brief(strings.Join(m.WaitsFor, ", "), 120)
		case waiting.BudgetSpent:
			return "deferred", "budget spent, due " + ago(w.Until)
		case waiting.Deferred:
			return "deferred", "due " + ago(w.Until)
		case waiting.DetachedCalls:
			return state, "for " + detachedCalls(w.Count)
		case waiting.Person:
			return state, "for a person"
		case waiting.WorkerSilent:
			if m.State == turnkeeper.MessageRunning {
				return state, SilentFor(turnkeeper.Silence{For: w.Silent, Stopped: w.Stopped})
			}
		case waiting.UnknownAgent:
			return state, "unknown agent"
		case waiting.AgentRetired:
			return state, "agent retired"
		case waiting.SchedulerPaused:
			return state, "scheduler paused"
		case waiting.SchedulerHoldsOff:
			return state, "scheduler holds off"
		case waiting.SchedulerSilent:
			return state, "no scheduler"
		case waiting.NoWorker:
			return state, "no worker"
		case waiting.NotDue:
			return state, "due " + ago(w.Until)
		case waiting.LaneBackoff:
			return state, "retried " + ago(w.Until)
		}
	}
	return state, ""
}

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
