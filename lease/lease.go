// Package lease holds a lease while work runs under it. Hold returns a context for the work
// that ends, with a cause, before another worker can hold the lease. A Heart writes the
// heartbeat of a worker process, and gives up the process's turns before others may take
// them over.
//
// The package uses the process's monotonic clock, and counts from before the query that
// returned the remaining time. The work may therefore end too early, but never too late. It
// uses no database.
package lease

import (
	"context"
	"errors"
	"time"
)

// Causes of an ended context.
var (
	// ErrLapsed means that the lease is over.
	ErrLapsed = errors.New("the lease is over")
	// ErrSilent means that the process could not write its heartbeat for so long that
	// others may soon take its turns over.
	ErrSilent = errors.New("the worker's heartbeat could not be written")
)

// A Held is the time span of a lease, by this process's clock.
type Held struct {
	Deadline time.Time // the end of the lease
	Start    time.Time // the grant
}

// Hold returns a context for the work under a lease. It ends with ErrLapsed at the end of the
// lease. asked is the time at which the query was sent that returned remaining, the time
// left of the lease, and elapsed, the time since its grant.
func Hold(ctx context.Context, asked time.Time, remaining,
	elapsed time.Duration) (context.Context, Held, context.CancelFunc) {
	held := Held{Deadline: asked.Add(remaining), Start: asked.Add(-max(elapsed, 0))}
	ctx, cancel := context.WithDeadlineCause(ctx, held.Deadline, ErrLapsed)
	return ctx, held, cancel
}
