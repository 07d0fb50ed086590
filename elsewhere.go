package turnkeeper

import "time"

// Bounds of a detached call.
const (
	// MaxDetached is the longest that one run of a detached call may take.
	MaxDetached = 24 * time.Hour
	// MaxDetachedWait is how long a detached call waits for a worker with its
	// tool and room for it.
	MaxDetachedWait = 24 * time.Hour
	// MaxDetachedLosses is how many lost workers a detached call that may run
	// again can cost; then it has failed.
	MaxDetachedLosses = 3
)

// A CallRef names a run of a detached call: what its job carries.
type CallRef struct {
	TurnID  TurnID
	Key     CallKey
	Attempt int // from 1
}

// A ClaimID is random; it tells one run of a detached call from every other.
type ClaimID string

// A ClaimedCall is a detached call as the worker gets it that may run it.
type ClaimedCall struct {
	Ref   CallRef
	Claim ClaimID
	Turn  Turn     // no more of it than is told to tools
	Call  ToolCall // as planned
	// Limit is the most that a run may take. It is what the model is told of a run that timed out.
	Limit time.Duration
	// Left is what is left of Limit: less where the answer to an earlier claim was lost. 0 or less:
	// the time is up.
	Left time.Duration
	// TraceParent is the trace context of the turn's message; empty: none.
	TraceParent string
}

// CallTrouble is why a detached call has no result.
type CallTrouble string

// The troubles.
const (
	CallLost     CallTrouble = "lost"     // the worker that ran it is silent, or has given it up
	CallOverdue  CallTrouble = "overdue"  // it ran for longer than it may
	CallUnrung   CallTrouble = "unrung"   // no run has begun, and its job is gone
	CallUnwanted CallTrouble = "unwanted" // no worker took it for as long as it may wait
)

// A LostCall is a detached call that will have no result unless something is
// done about it.
type LostCall struct {
	Ref      CallRef
	Trouble  CallTrouble
	Name     string
	Effect   Effect
	OutputID OutputID
	Losses   int // before this one
	Limit    time.Duration
	WorkerID WorkerID // that ran it; empty: none did
	Alive    bool     // its worker's process is there, only late: this is not counted as a loss
	JobID    JobID
}

// An AwaitedCall is a call that is open elsewhere, as operators see it.
type AwaitedCall struct {
	Key       CallKey
	Name      string
	Since     time.Time
	Until     time.Time // CallOverdue, or CallUnwanted, from then on
	Attempt   int
	WorkerID  WorkerID // that runs it; empty: it waits for one
	ClaimedAt time.Time
	ArrivedAt time.Time // zero: it has no result yet
}
