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
	b := p.task.bounds
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

// A clock says how much time an execution has left, by the monotonic clock of this process. It does not change.
type clock struct {
	began  time.Time     // start of the execution
	wall   time.Time     // deadline of the turn
	lease  time.Time     // end of the lease
	tool   time.Duration // timeout of a tool that sets none
	margin time.Duration // of the lease, which must be left after the timeout of a call
}

// newClock returns the clock of an execution that begins now.
func newClock(a Assignment, bounds turnkeeper.Bounds) clock {
	now := time.Now()
	c := clock{began: now, wall: a.WallDeadline, lease: a.LeaseDeadline, tool: bounds.ToolTimeout,
		margin: bounds.Margin}
	if c.wall.IsZero() {
		c.wall = now.Add(bounds.MaxDuration - a.Record.Elapsed)
	}
	if c.lease.IsZero() {
		c.lease = now.Add(a.Record.Remaining)
	}
	return c
}

// timeout returns the timeout of a call: the tool's or the agent's, at most the time left
// of the turn.
func (c *clock) timeout(spec tools.Spec) time.Duration {
	bound := spec.Timeout
	if bound == 0 {
		bound = c.tool
	}
	return min(bound, time.Until(c.wall))
}

// timeFor reports whether the lease outlasts a call of the tool plus the margin.
func (c *clock) timeFor(spec tools.Spec) bool {
	return time.Until(c.lease) > c.timeout(spec)+c.margin
}
