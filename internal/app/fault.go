package app

import (
	"context"
	"slices"

	"turnkeeper/agentturn"
	"turnkeeper/internal/webhooks"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage"
)

// A FaultHook is called at labelled points (see FaultPoints) of a program, by
// the goroutine that comes by: it may block, panic, or have the process killed.
// Only programs of the tests have one.
type FaultHook interface {
	At(ctx context.Context, label string)
}

// Points of a worker's own life.
const (
	pointStarting = "worker.starting"   // the schema is there, nothing is running
	pointReady    = "worker.ready"      // it takes work
	pointBeat     = "worker.beat"       // before a heartbeat
	pointBeaten   = "worker.beaten"     // after it
	pointStopping = "shutdown.begin"    // the first signal has come
	pointDrained  = "shutdown.draining" // others know that it takes no more turns
	pointStopped  = "shutdown.stopped"  // no turn runs
	pointNoted    = "shutdown.noted"    // its end is on record
)

// FaultPoints are all points there are, in the order of a message's way.
func FaultPoints() []string {
	return slices.Concat(
		storage.FaultPoints(), scheduler.FaultPoints(), jobs.FaultPoints(), agentturn.FaultPoints(), webhooks.FaultPoints(),
		[]string{pointStarting, pointReady, pointBeat, pointBeaten, pointStopping, pointDrained, pointStopped, pointNoted},
	)
}

// WithFaults makes the worker call hook at each point. For tests only.
func WithFaults(hook FaultHook) WorkerOption {
	return func(w *worker) { w.fault = hook }
}

func (w *worker) at(ctx context.Context, label string) {
	if w.fault != nil {
		w.fault.At(ctx, label)
	}
}
