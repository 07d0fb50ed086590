package jobs

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

// watchEvery is how often a worker asks, without a doorbell, whether the calls it
// runs are still its own.
const watchEvery = 5 * time.Second

// Watch stops, until ctx ends, calls that are no longer awaited from this worker,
// when rings says that there may be some and on a slow poll; and it gives back
// what the worker was given and does not work.
func (w *CallWorker) Watch(ctx context.Context, rings <-chan struct{}) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rings:
		case <-tick.C:
			w.GiveBack(ctx, overlookedAfter)
		}
		w.stopVoid(ctx)
	}
}

// stopVoid stops the calls whose claims are void.
func (w *CallWorker) stopVoid(ctx context.Context) {
	w.mu.Lock()
	claims := slices.Collect(maps.Keys(w.running))
	w.mu.Unlock()
	if len(claims) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, giveBackTime)
	defer cancel()
	held, err := w.journals.ClaimsHeld(ctx, claims)
	if err != nil {
		return // it is asked again
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, claim := range claims {
		if call := w.running[claim]; call != nil && !slices.Contains(held, claim) {
			call.cancel(errClaimVoid)
		}
	}
}

// GiveBack gives back, once, what of detached calls was fetched or claimed longer
// than older ago and is not worked. 0 is for a worker that works no more.
func (w *CallWorker) GiveBack(ctx context.Context, older time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTime)
	defer cancel()
	w.mu.Lock()
	jobs := slices.Collect(maps.Keys(w.jobs))
	claims := slices.Collect(maps.Keys(w.running))
	w.mu.Unlock()
	given, err := w.grants.GiveBackCalls(ctx, w.WorkerID, older, jobs, claims)
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("the worker could not look for detached calls that it overlooked", zap.Error(err))
	}
	if given.Jobs+given.Grants > 0 {
		w.Log.Warn("detached calls that were taken and are not run are given back",
			zap.Int("jobs", given.Jobs), zap.Int("claims", given.Grants))
	}
}
