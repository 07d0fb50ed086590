package grants

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Beat records a heartbeat of a worker process. It uses a connection of the queue's pool: writes that wait for locked
// rows can take all connections of the main pool.
func (s *Store) Beat(ctx context.Context, h presence.Heartbeat) error {
	err := pg.Translate(dbsqlc.New(s.db.Queue).Beat(ctx, dbsqlc.BeatParams{
		WorkerID: string(h.WorkerID), Host: s.db.Clean(h.Host),
		Pid:     int32(h.PID), //nolint:gosec // a pid
		Version: h.Version,
		Slots:   int32(h.Slots), //nolint:gosec // checked settings
		Roles:   dbrow.OrEmpty(h.Roles), TakeoverAfter: h.TakeoverAfter,
		Refused: dbrow.StoreRefused(h.Refused),
	}))
	s.beats.Note(err)
	return err
}

// StopBeating records that a worker has stopped cleanly.
func (s *Store) StopBeating(ctx context.Context, id turnkeeper.WorkerID) error {
	return pg.Translate(s.db.Q.StopBeating(ctx, string(id)))
}

// Overlooked counts jobs and grants that a worker has and does not run.
type Overlooked struct {
	Jobs   int // fetched by River, but the answer was lost; they are available again
	Grants int // left without writing their end; they count as lost now
}

// GiveBack returns the jobs and grants that this worker got longer than older ago and
// that are not in working, the grants that it runs. away lists grants that it left
// because the database was unavailable: these do not count against their messages.
func (s *Store) GiveBack(ctx context.Context, id turnkeeper.WorkerID, older time.Duration, working,
	away []turnkeeper.GrantID) (Overlooked, error) {
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

// ForgetWorkers deletes the heartbeats of workers that ended more than a day ago.
func (s *Store) ForgetWorkers(ctx context.Context) error {
	return pg.Translate(s.db.Q.ForgetWorkers(ctx))
}
