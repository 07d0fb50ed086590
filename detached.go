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
