package storage

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// Beat is a sign of life of a worker process.
func (s *Store) Beat(ctx context.Context, h turnkeeper.Heartbeat) error {
	return translate(s.q.Beat(ctx, dbsqlc.BeatParams{
		WorkerID: string(h.WorkerID), Host: s.clean(h.Host), Pid: int32(h.PID), Version: h.Version, //nolint:gosec // a pid
		Slots: int32(h.Slots), TakeoverAfter: h.TakeoverAfter, Roles: orNone(h.Roles), //nolint:gosec // checked settings
	}))
}

// StopBeating says that a worker has ended in good order.
func (s *Store) StopBeating(ctx context.Context, id turnkeeper.WorkerID) error {
	return translate(s.q.StopBeating(ctx, string(id)))
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
	ids := grantTexts(working)
	jobs, err := s.q.GiveBackJobs(ctx, string(id), older, ids)
	if err != nil {
		return Overlooked{}, translate(err)
	}
	grants, err := s.q.GiveUpGrants(ctx, grantTexts(away), string(id), older, ids)
	if err == nil && grants > 0 {
		err = s.q.RingInbox(ctx)
	}
	return Overlooked{Jobs: int(jobs), Grants: int(grants)}, translate(err)
}

func grantTexts(grants []turnkeeper.GrantID) []string {
	texts := make([]string, len(grants))
	for i, grant := range grants {
		texts[i] = string(grant)
	}
	return texts
}

// ForgetWorkers removes the heartbeats of workers that ended a day ago.
func (s *Store) ForgetWorkers(ctx context.Context) error {
	return translate(s.q.ForgetWorkers(ctx))
}

// Workers lists worker processes, without those that ended an hour ago.
func (s *Store) Workers(ctx context.Context) ([]turnkeeper.Heartbeat, error) {
	rows, err := s.q.ListWorkers(ctx)
	return mapRows(rows, func(r dbsqlc.ListWorkersRow) turnkeeper.Heartbeat {
		return turnkeeper.Heartbeat{
			WorkerID: turnkeeper.WorkerID(r.WorkerID), Host: r.Host, PID: int(r.Pid), Version: r.Version, Slots: int(r.Slots),
			TakeoverAfter: r.TakeoverAfter, StartedAt: r.StartedAt, BeatAt: r.BeatAt, StoppedAt: orZero(r.StoppedAt),
			Silent: time.Duration(r.SilentMs) * time.Millisecond, Roles: r.Roles,
		}
	}), translate(err)
}
