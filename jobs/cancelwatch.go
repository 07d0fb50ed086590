package jobs

import (
	"context"
	"maps"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
)

// cancelPoll is how often a worker asks, without a doorbell, whether a turn that it
// runs is to be cancelled.
const cancelPoll = 2 * time.Second

// WatchCancels ends, until ctx does, the turns here that somebody asked to be
// cancelled: when rings says that there may be some, and on a slow poll.
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

// cancelAsked ends the turns whose cancellation is asked for. They close
// themselves, as after every end.
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
		return // it is asked again
	}
	for _, grant := range asked {
		w.cancel(grant)
	}
}

// cancel ends the turn that runs under the grant, if it still does.
func (w *Worker) cancel(grant turnkeeper.GrantID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := w.running[grant]; end != nil {
		end(agentturn.ErrCancelled)
	}
}
