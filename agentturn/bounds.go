package agentturn

import (
	"fmt"
	"time"
	"turnkeeper/agentturn/prompt"

	"turnkeeper"
	"turnkeeper/tools"
)

// overCap is the result of a call for which executed or paging calls are used
// up; empty when it may run.
func (t *turn) overCap(call turnkeeper.ToolCall, executed, paged int) string {
	if call.Paging {
		if paged >= t.bounds.MaxPagingCalls {
			return shownOverPaging(t.bounds)
		}
		return ""
	}
	if executed >= t.bounds.MaxToolCalls {
		return shownOverCalls(t.bounds)
	}
	return ""
}

// roomForCalls is how many calls that do not page may still begin. What is planned
// fits, but for repeats that have to be run.
func (t *turn) roomForCalls() int {
	room := t.bounds.MaxToolCalls
	for _, call := range t.calls() {
		if call.State.Executed() && !call.Paging {
			room--
		}
	}
	return room
}

// overLimit begins the result of every call that is denied for its number.
const overLimit = "denied: over the limit of "

func shownOverCalls(b turnkeeper.Bounds) string {
	return fmt.Sprintf(overLimit+"%d tool calls a turn; this one was not run", b.MaxToolCalls)
}

func shownOverPaging(b turnkeeper.Bounds) string {
	return fmt.Sprintf(overLimit+"%d reads of stored outputs a turn; this one was not run", b.MaxPagingCalls)
}

// roundsUsedUp says that no model call is left.
func (t *turn) roundsUsedUp() bool {
	return prompt.Charged(t.rounds) >= t.bounds.MaxRounds || len(t.rounds) >= t.bounds.RoundCeiling
}

// lastRound says that the next model call is the last allowed one, and a
// continuation, so that tools would be of no use to it.
func (t *turn) lastRound() bool {
	return len(t.rounds) > 0 &&
		(prompt.Charged(t.rounds)+1 >= t.bounds.MaxRounds || len(t.rounds)+1 >= t.bounds.RoundCeiling || t.overLimit())
}

// overLimit says that more calls were asked for than the turn may run. The next round is
// the last one then.
func (t *turn) overLimit() bool { return anyRefused(t.calls(), overLimit) }

// lastRoundStop is the bound that makes a round the last one.
func (t *turn) lastRoundStop() turnkeeper.StopReason {
	if t.overLimit() {
		return turnkeeper.StopMaxToolCalls
	}
	return turnkeeper.StopMaxRounds
}

// timeout is how long a call of a tool may take: its own bound, or what is left
// of the turn.
func (t *turn) timeout(spec tools.Spec) time.Duration {
	bound := spec.Timeout
	if bound == 0 {
		bound = t.bounds.ToolTimeout
	}
	return min(bound, time.Until(t.wall))
}

// timeFor says that the lease will outlast a call of the tool, with the margin.
func (t *turn) timeFor(spec tools.Spec) bool {
	return time.Until(t.lease) > t.timeout(spec)+t.bounds.Margin
}
