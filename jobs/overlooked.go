package jobs

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
)

// A worker looks so often for what it overlooked, and takes for overlooked what
// it does not work so long after it was fetched: far longer than a job takes
// from the fetch to Work.
const (
	lookForOverlooked = 3 * time.Second
	overlookedAfter   = 5 * time.Second
)

// giveBackTime bounds one look.
const giveBackTime = 10 * time.Second

// GiveBackOverlooked gives back, until ctx ends, what the worker was given and
// does not work: jobs whose fetch was committed and not answered, and turns that
// it had to leave because their end could not be written. The worker is alive,
// so that nobody would take these from it before the end of their leases. Where
// something comes to be worked twice by that, the grant still belongs to one.
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

// GiveBack gives back, once, what was fetched longer than older ago and is not
// worked. 0 is for a worker that fetches and works no more.
func (w *Worker) GiveBack(ctx context.Context, older time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTime)
	defer cancel()
	w.mu.Lock()
	working := slices.Collect(maps.Keys(w.running))
	away := slices.Collect(maps.Keys(w.away))
	w.mu.Unlock()
	given, err := w.grants.GiveBack(ctx, w.WorkerID, older, working, away)
	if err == nil {
		w.forgetAway(away, working)
	}
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("the worker could not look for turns that it overlooked", zap.Error(err))
	}
	if given.Jobs > 0 {
		w.Log.Warn("jobs were fetched and did not arrive; they are given out again", zap.Int("jobs", given.Jobs))
	}
	if given.Grants > 0 {
		w.Log.Warn("turns whose end could not be written are given back", zap.Int("turns", given.Grants))
	}
}

// forgetAway forgets grants that the worker left while the database was away, and that
// are given back.
func (w *Worker) forgetAway(away, working []turnkeeper.GrantID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, grant := range away {
		if !slices.Contains(working, grant) {
			delete(w.away, grant)
		}
	}
}
