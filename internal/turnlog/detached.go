// Package turnlog holds what a worker reads from the journal of a turn and what it writes to it: the
// record, entries, starts and results of calls, messages to sub-agents, and the end of a dispatch. It does
// no I/O.
package turnlog

import (
	"time"

	"turnkeeper"
)

// A CallRef names one run of a detached call. It is the argument of its job.
type CallRef struct {
	TurnID  turnkeeper.TurnID
	Key     turnkeeper.CallKey
	Attempt int // from 1
}

// A ClaimID is the random id of one run of a detached call.
type ClaimID string

// A ClaimedCall is a detached call that this worker may run.
type ClaimedCall struct {
	Ref   CallRef
	Claim ClaimID
	Turn  turnkeeper.Turn     // only the fields that tools see
	Call  turnkeeper.ToolCall // as planned
	// Limit is the maximum duration of the run. The error of a run that timed out names it.
	Limit time.Duration
	// Left is the rest of Limit. It is less than Limit if the answer to an earlier claim was lost, and 0
	// or less if the time is up.
	Left time.Duration
	// TraceParent is the trace context of the turn's message. Empty: none.
	TraceParent string
}
