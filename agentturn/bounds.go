package agentturn

import (
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/tools"
)

// overCap returns the result of a call that is over the limit of executed or paging calls,
// or an empty text if it may run.
func (p *planner) overCap(call *calls.Call) string {
	b := p.turn.bounds
	if call.Paging {
		if p.paged >= b.MaxPagingCalls {
			return shownOverPaging(b)
		}
		return ""
	}
	if p.executed >= b.MaxToolCalls {
		return calls.ShownOverCalls(b)
	}
	return ""
}

func shownOverPaging(b turnkeeper.Bounds) string {
	return fmt.Sprintf(calls.OverLimit+"%d reads of stored outputs a turn; this one was not run", b.MaxPagingCalls)
}

// timeout returns the timeout of a call: the tool's or the agent's, at most the time left
// of the turn.
func (t *task) timeout(spec tools.Spec) time.Duration {
	bound := spec.Timeout
	if bound == 0 {
		bound = t.bounds.ToolTimeout
	}
	return min(bound, time.Until(t.wall))
}

// timeFor reports whether the lease outlasts a call of the tool plus the margin.
func (t *task) timeFor(spec tools.Spec) bool {
	return time.Until(t.lease) > t.timeout(spec)+t.bounds.Margin
}
