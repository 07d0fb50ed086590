package jobs

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

// A worker looks so often for jobs that it overlooked, and takes a job for
// overlooked that it does not work so long after it was fetched: far longer
// than a job takes from the fetch to Work.
const (
	lookForOverlooked = 3 * time.Second
	overlookedAfter   = 5 * time.Second
)

// giveBackTime bounds one look.
const giveBackTime = 10 * time.Second

// GiveBackOverlooked gives back, until ctx ends, jobs that the worker overlooked:
// River noted that it fetched them, and the answer that told it so was lost.
// Their grants would otherwise wait for the end of their leases, for the worker
// that has them is alive. Where a job comes to be worked twice by that, the
// grant still belongs to one.
func (w *Worker) GiveBackOverlooked(ctx context.Context) {
	tick := time.NewTicker(lookForOverlooked)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.GiveBack(ctx, overlookedAfter)
		}
	}
}

// GiveBack gives back, once, the jobs that were fetched longer than older ago
// and are not worked. 0 is for a worker that fetches and works no more.
func (w *Worker) GiveBack(ctx context.Context, older time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTime)
	defer cancel()
	w.mu.Lock()
	working := slices.Collect(maps.Keys(w.running))
	w.mu.Unlock()
	n, err := w.Store.GiveBackJobs(ctx, w.WorkerID, older, working)
	switch {
	case err != nil && ctx.Err() == nil:
		w.Log.Warn("the worker could not look for jobs that it overlooked", zap.Error(err))
	case n > 0:
		w.Log.Warn("jobs were fetched and did not arrive; they are given out again", zap.Int("jobs", n))
	}
}
