package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
)

// cancelPoll is how often a worker checks, without a doorbell, for requests to cancel
// the turns that it runs.
const cancelPoll = 2 * time.Second

// WatchCancels runs until ctx ends. On each ring and on a slow poll, it cancels the turns
// here that have a request to cancel, and stops those whose grant was taken away.
func (w *Worker) WatchCancels(ctx context.Context, rings <-chan struct{}) {
	tick := time.NewTicker(cancelPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rings:
		case <-tick.C:
		}
		w.cancelAsked(ctx)
	}
}

// cancelAsked cancels the turns that have a request to cancel, each of which writes its own end, and stops
// those whose grant was taken away.
func (w *Worker) cancelAsked(ctx context.Context) {
	w.mu.Lock()
	grants := slices.Collect(maps.Keys(w.running))
	w.mu.Unlock()
	if len(grants) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, giveBackTime)
	defer cancel()
	asked, err := w.grants.CancelledGrants(ctx, grants)
	if err != nil {
		return // retried at the next poll
	}
	for _, grant := range asked {
		w.cancel(grant, agentturn.ErrCancelled)
	}
	taken, err := w.grants.TakenGrants(ctx, grants)
	if err != nil {
		return
	}
	for _, grant := range taken {
		w.cancel(grant, errTaken)
	}
}

// errTaken ends a turn whose grant was taken away.
var errTaken = fmt.Errorf("%w: the worker counted as lost, and the turn was taken from it", turnkeeper.ErrFenced)

// cancel cancels the turn that runs under the grant, if there is one.
func (w *Worker) cancel(grant turnkeeper.GrantID, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.running[grant]; r != nil {
		r.cancel(cause)
	}
}
