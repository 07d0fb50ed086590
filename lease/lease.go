// Package lease holds a lease while work runs under it. Hold gives the work a
// context that ends, with a cause, before the lease can have passed to somebody
// else; a Heart is the sign of life of a worker process, which ends the work of
// its own process before others may take it over.
//
// The package measures with the process's own monotonic clock, counted from
// before the question whose answer said how much was left: so it errs only
// towards ending too soon. It knows no database.
package lease

import (
	"context"
	"errors"
	"time"
)

// Causes of an ended context.
var (
	// ErrLapsed ends work whose lease is over.
	ErrLapsed = errors.New("the lease is over")
	// ErrSilent ends the work of a process that could not write its heartbeat
	// for so long that its turns may be taken over.
	ErrSilent = errors.New("the worker's heartbeat could not be written")
)

// A Held lease is the time that work under it has.
type Held struct {
	// Deadline is when the lease is over, by this process's clock.
	Deadline time.Time
	// Start is when it was granted, by this process's clock.
	Start time.Time
}

// Hold derives the context of the work under a lease. asked is when the
// question was sent whose answer said that remaining was left of the lease and
// elapsed had passed since its grant. The context ends with ErrLapsed when the
// lease does.
func Hold(ctx context.Context, asked time.Time, remaining, elapsed time.Duration) (context.Context, Held, context.CancelFunc) {
	held := Held{Deadline: asked.Add(remaining), Start: asked.Add(-max(elapsed, 0))}
	ctx, cancel := context.WithDeadlineCause(ctx, held.Deadline, ErrLapsed)
	return ctx, held, cancel
}
