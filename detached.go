package turnkeeper

import "time"

// Limits of a detached call.
const (
	// MaxDetached is the maximum duration of one run.
	MaxDetached = 24 * time.Hour
	// MaxDetachedWait is how long a call waits for a worker with its tool and a
	// free slot.
	MaxDetachedWait = 24 * time.Hour
)

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
