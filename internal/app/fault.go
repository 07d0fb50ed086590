package app

import (
	"context"
	"slices"

	"turnkeeper/agentturn"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/webhooks"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
)

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
		storage.FaultPoints(), grants.FaultPoints(), journal.FaultPoints(), scheduler.FaultPoints(), jobs.FaultPoints(), agentturn.FaultPoints(), webhooks.FaultPoints(),
		[]string{pointStarting, pointReady, pointBeat, pointBeaten, pointStopping, pointDrained, pointStopped, pointNoted},
	)
}

// WithFaults makes the worker call hook at each point. For tests only.
func WithFaults(hook fault.Hook) WorkerOption {
	return func(w *worker) { w.fault = hook }
}

func (w *worker) at(ctx context.Context, label string) {
	fault.At(ctx, w.fault, label)
}
