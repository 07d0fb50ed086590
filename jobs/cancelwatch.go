package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/turnlog"
)

// cancelPoll is how often a worker checks, without a doorbell, for requests to end
// the turns that it runs.
const cancelPoll = 2 * time.Second

// WatchCancels runs until ctx ends. On each ring and on a slow poll, it cancels the turns here that have a request to
// cancel, lets those finish that have one to finish, and stops those whose grant was taken away.
func (w *Worker) WatchCancels(ctx context.Context, rings <-chan struct{}) {
	tick := time.NewTicker(w.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rings:
		case <-tick.C:
		}
		w.endAsked(ctx)
	}
}

// endAsked passes on requests to end turns, each of which writes its own end, and stops
// those whose grant was taken away.
func (w *Worker) endAsked(ctx context.Context) {
	w.mu.Lock()
	grants := slices.Collect(maps.Keys(w.running))
	w.mu.Unlock()
	if len(grants) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, giveBackTime)
	defer cancel()
	asked, err := w.grants.EndsRequested(ctx, grants)
	if err != nil {
		return // retried at the next poll
	}
	for grant, how := range asked {
		w.end(grant, how)
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

// end ends the turn that runs under the grant, if there is one, as somebody wants.
func (w *Worker) end(grant turnkeeper.GrantID, how turnlog.WantedEnd) {
	switch how {
	case turnlog.EndCancel:
		w.cancel(grant, agentturn.ErrCancelled)
	case turnlog.EndFinish:
		w.mu.Lock()
		defer w.mu.Unlock()
		if r := w.running[grant]; r != nil {
			r.askToFinish()
		}
	}
}

// cancel cancels the turn that runs under the grant, if there is one.
func (w *Worker) cancel(grant turnkeeper.GrantID, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.running[grant]; r != nil {
		r.cancel(cause)
	}
}
