package jobs

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
)

// The interval at which a worker queries the jobs and grants that it has and does not run, and
// their minimum age, which is much longer than the time from the fetch to Work.
const (
	lookForOverlooked = 3 * time.Second
	overlookedAfter   = 5 * time.Second
)

// giveBackTime is the timeout of GiveBack.
const giveBackTime = 10 * time.Second

// GiveBackOverlooked runs until ctx ends. It gives back the work that the worker has and does not
// run: jobs whose fetch was committed but not answered, and turns that it left because it could not
// write their end. Because the worker is alive, the scheduler would reclaim these only at the end of
// their leases. If two workers get the same job because of this, only one can bind its grant.
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

// GiveBack gives back, once, jobs and grants that are older than older and do not run. A
// worker that has stopped uses 0.
func (w *Worker) GiveBack(ctx context.Context, older time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTime)
	defer cancel()
	w.mu.Lock()
	working := slices.Collect(maps.Keys(w.running))
	away := slices.Collect(maps.Keys(w.away))
	// River does not work what it cannot read
	maps.DeleteFunc(w.fetched, func(_ int64, at time.Time) bool { return time.Since(at) > overlookedAfter })
	w.mu.Unlock()
	given, err := w.grants.GiveBack(ctx, w.WorkerID, older, working, away)
	if err == nil {
		w.forgetAway(away, working)
	}
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("looking for turns that the worker was given and does not run failed", zap.Error(err))
	}
	if given.Jobs > 0 {
		w.Log.Warn("fetched jobs did not arrive; making them available again", zap.Int("jobs", given.Jobs))
	}
	if given.Grants > 0 {
		w.Log.Warn("giving back turns whose end could not be written", zap.Int("turns", given.Grants))
	}
}

// forgetAway forgets the grants that were given back, among those that the worker left
// while the database was unavailable.
func (w *Worker) forgetAway(away, working []turnkeeper.GrantID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, grant := range away {
		if !slices.Contains(working, grant) {
			delete(w.away, grant)
		}
	}
}
