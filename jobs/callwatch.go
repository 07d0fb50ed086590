package jobs

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

// watchEvery is how often a worker checks, without a doorbell, whether its claims are
// still valid.
const watchEvery = 5 * time.Second

// Watch runs until ctx ends. On each ring and on a slow poll, it stops calls whose claim
// is void, and gives back jobs and claims that the worker was given and does not run.
func (w *CallWorker) Watch(ctx context.Context, rings <-chan struct{}) {
	tick := time.NewTicker(w.poll)
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
		return // retried at the next poll
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, claim := range claims {
		if call := w.running[claim]; call != nil && !slices.Contains(held, claim) {
			call.cancel(errClaimVoid)
		}
	}
}

// GiveBack gives back, once, jobs and claims of detached calls that are older than older
// and do not run. A worker that has stopped uses 0.
func (w *CallWorker) GiveBack(ctx context.Context, older time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTime)
	defer cancel()
	w.mu.Lock()
	jobs := slices.Collect(maps.Keys(w.jobs))
	claims := slices.Collect(maps.Keys(w.running))
	w.mu.Unlock()
	given, err := w.grants.GiveBackCalls(ctx, w.WorkerID, older, jobs, claims)
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("looking for detached calls that the worker was given and does not run failed", zap.Error(err))
	}
	if given.Jobs+given.Grants > 0 {
		w.Log.Warn("giving back detached calls that the worker was given and does not run",
			zap.Int("jobs", given.Jobs), zap.Int("claims", given.Grants))
	}
}
