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

// Fault points of a worker's start and stop.
const (
	pointStarting = "worker.starting"   // the schema is ready, nothing runs
	pointReady    = "worker.ready"      // the worker takes work
	pointBeat     = "worker.beat"       // before a heartbeat
	pointBeaten   = "worker.beaten"     // after a heartbeat
	pointStopping = "shutdown.begin"    // after the first signal
	pointDrained  = "shutdown.draining" // the worker has announced that it takes no more turns
	pointStopped  = "shutdown.stopped"  // no turn runs
	pointNoted    = "shutdown.noted"    // its stop is recorded
)

// FaultPoints returns all fault points, in the order in which a message passes them.
func FaultPoints() []string {
	return slices.Concat(
		storage.FaultPoints(), grants.FaultPoints(), journal.FaultPoints(), scheduler.FaultPoints(), jobs.FaultPoints(),
		agentturn.FaultPoints(), webhooks.FaultPoints(),
		[]string{pointStarting, pointReady, pointBeat, pointBeaten, pointStopping, pointDrained,
			pointStopped, pointNoted},
	)
}

// WithFaults makes the worker call hook at each point. For tests only.
func WithFaults(hook fault.Hook) WorkerOption {
	return func(w *worker) { w.fault = hook }
}

func (w *worker) at(ctx context.Context, label string) {
	fault.At(ctx, w.fault, label)
}
