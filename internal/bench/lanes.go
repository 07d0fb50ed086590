package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"turnkeeper/internal/pause"
)

// A load says which turns a system runs. Each lane starts its next turn when its last one is answered.
type load struct {
	Lanes, Turns int
	Pause        time.Duration // of a lane after each turn

	// Only for Turnkeeper.
	Agent    string
	Name     string // distinguishes the conversations of loads
	Reuse    int    // turns in a conversation before the lane takes a new one; 0: it keeps one
	Watchers int    // HTTP clients that follow each turn
	// send nothing: run messages that wait, at least Turns, while the scheduler is paused before and after
	Drain bool
}

// An outcome says how a load ran.
type outcome struct {
	Took         []time.Duration // from sending a message to its reply, one for each turn
	FirstRequest []time.Duration // from sending a message to the first request to the model
	// bytes of requests to the model, and of them those with which the request before in the conversation began
	Requested, Repeated int64
	Elapsed             time.Duration
	Drained             int // turns of a load that drains
	Events              int // received by a watcher of the last turn
}

// A rest waits for the part of a turn that is not timed. Nil: there is none.
type rest func() error

// run runs the load. turn runs the n-th turn of a lane, both from 0, and returns when it is answered.
func (l load) run(ctx context.Context, turn func(ctx context.Context, lane, n int) (rest, error)) (outcome, error) {
	var left atomic.Int64
	left.Store(int64(l.Turns))
	var mu sync.Mutex
	var o outcome
	group, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for lane := range l.Lanes {
		group.Go(func() error {
			for n := 0; left.Add(-1) >= 0; n++ {
				began := time.Now()
				after, err := turn(ctx, lane, n)
				took := time.Since(began)
				mu.Lock()
				o.Took = append(o.Took, took)
				mu.Unlock()
				if err == nil && after != nil {
					err = after()
				}
				if err == nil && l.Pause > 0 {
					err = pause.For(ctx, l.Pause)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	o.Elapsed = time.Since(start)
	return o, err
}
