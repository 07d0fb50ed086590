package turnkeeper

import "time"

// Limits of a detached call.
const (
	// MaxDetached is the maximum duration of one run.
	MaxDetached = 24 * time.Hour
	// MaxDetachedWait is how long a call waits for a worker with its tool and a
	// free slot.
	MaxDetachedWait = 24 * time.Hour
	// MaxDetachedLosses is the number of lost workers after which a repeatable
	// call fails.
	MaxDetachedLosses = 3
)

// A CallRef names one run of a detached call. It is the argument of its job.
type CallRef struct {
	TurnID  TurnID
	Key     CallKey
	Attempt int // from 1
}

// A ClaimID is the random id of one run of a detached call.
type ClaimID string

// A ClaimedCall is a detached call that this worker may run.
type ClaimedCall struct {
	Ref   CallRef
	Claim ClaimID
	Turn  Turn     // only the fields that tools see
	Call  ToolCall // as planned
	// Limit is the maximum duration of the run. The error of a run that timed out names it.
	Limit time.Duration
	// Left is the rest of Limit. It is less than Limit if the answer to an earlier claim was lost, and 0
	// or less if the time is up.
	Left time.Duration
	// TraceParent is the trace context of the turn's message. Empty: none.
	TraceParent string
}

// CallTrouble is why a detached call has no result.
type CallTrouble string

// The reasons.
const (
	CallLost     CallTrouble = "lost"     // its worker is silent, or gave it up
	CallOverdue  CallTrouble = "overdue"  // it ran longer than its limit
	CallUnrung   CallTrouble = "unrung"   // no run began, and its job is missing
	CallUnwanted CallTrouble = "unwanted" // no worker claimed it within MaxDetachedWait
)

// A LostCall is a detached call that gets no result unless the scheduler acts.
type LostCall struct {
	Ref      CallRef
	Trouble  CallTrouble
	Name     string
	Effect   Effect
	OutputID OutputID
	Losses   int // earlier ones
	Limit    time.Duration
	WorkerID WorkerID // its worker; empty: none ran it
	Alive    bool     // its worker's process is alive but late: this does not count as a loss
	JobID    JobID
}

// An AwaitedCall is an open detached call, as operators see it.
type AwaitedCall struct {
	Key       CallKey
	Name      string
	Since     time.Time
	Until     time.Time // then it is CallOverdue or CallUnwanted
	Attempt   int
	WorkerID  WorkerID // its worker; empty: it waits for one
	ClaimedAt time.Time
	ArrivedAt time.Time // zero: it has no result yet
}
