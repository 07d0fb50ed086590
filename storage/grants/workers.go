package grants

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Beat is a sign of life of a worker process.
func (s *Store) Beat(ctx context.Context, h turnkeeper.Heartbeat) error {
	return pg.Translate(s.db.Q.Beat(ctx, dbsqlc.BeatParams{
		WorkerID: string(h.WorkerID), Host: s.db.Clean(h.Host), Pid: int32(h.PID), Version: h.Version, //nolint:gosec // a pid
		Slots: int32(h.Slots), TakeoverAfter: h.TakeoverAfter, Roles: dbrow.OrEmpty(h.Roles), //nolint:gosec // checked settings
	}))
}

// StopBeating says that a worker has ended in good order.
func (s *Store) StopBeating(ctx context.Context, id turnkeeper.WorkerID) error {
	return pg.Translate(s.db.Q.StopBeating(ctx, string(id)))
}

// Overlooked is what a worker had and does not work.
type Overlooked struct {
	Jobs   int // were fetched and did not arrive; they are given out again
	Grants int // were worked and left without an end; they are over, and lost
}

// GiveBack gives back what was given to this worker longer than older ago and is
// not among working, the grants that it works. away are grants that it left because
// the database was away: these do not count against their messages.
func (s *Store) GiveBack(ctx context.Context, id turnkeeper.WorkerID, older time.Duration, working, away []turnkeeper.GrantID) (Overlooked, error) {
	ids := dbrow.Texts(working)
	jobs, err := s.db.Q.GiveBackJobs(ctx, string(id), older, ids)
	if err != nil {
		return Overlooked{}, pg.Translate(err)
	}
	grants, err := s.db.Q.GiveUpGrants(ctx, dbrow.Texts(away), string(id), older, ids)
	if err == nil && grants > 0 {
		err = s.db.Q.RingInbox(ctx)
	}
	return Overlooked{Jobs: int(jobs), Grants: int(grants)}, pg.Translate(err)
}

// ForgetWorkers removes the heartbeats of workers that ended a day ago.
func (s *Store) ForgetWorkers(ctx context.Context) error {
	return pg.Translate(s.db.Q.ForgetWorkers(ctx))
}
