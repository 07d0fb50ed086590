package agentturn

import (
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
)

// overCap is the result of a call for which executed or paging calls are used
// up; empty when it may run.
func (t *task) overCap(call turnkeeper.ToolCall, executed, paged int) string {
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

// overLimit begins the result of every call that is denied for its number.
const overLimit = "denied: over the limit of "

func shownOverCalls(b turnkeeper.Bounds) string {
	return fmt.Sprintf(overLimit+"%d tool calls a turn; this one was not run", b.MaxToolCalls)
}

func shownOverPaging(b turnkeeper.Bounds) string {
	return fmt.Sprintf(overLimit+"%d reads of stored outputs a turn; this one was not run", b.MaxPagingCalls)
}

// timeout is how long a call of a tool may take: its own bound, or what is left
// of the turn.
func (t *task) timeout(spec tools.Spec) time.Duration {
	bound := spec.Timeout
	if bound == 0 {
		bound = t.bounds.ToolTimeout
	}
	return min(bound, time.Until(t.wall))
}

// timeFor says that the lease will outlast a call of the tool, with the margin.
func (t *task) timeFor(spec tools.Spec) bool {
	return time.Until(t.lease) > t.timeout(spec)+t.bounds.Margin
}
