package grants

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/pg"
)

// GiveBackCalls is like GiveBack for detached calls: it returns jobs and claims that
// this worker got longer than older ago and that are not in working or running.
func (s *Store) GiveBackCalls(ctx context.Context, id turnkeeper.WorkerID, older time.Duration,
	working []turnkeeper.JobID, running []turnlog.ClaimID) (Overlooked, error) {
	ids := make([]int64, len(working))
	for i, job := range working {
		ids[i] = int64(job)
	}
	jobs, err := s.db.Q.GiveBackCallJobs(ctx, string(id), older, ids)
	if err != nil {
		return Overlooked{}, pg.Translate(err)
	}
	claims, err := s.db.Q.GiveUpClaims(ctx, string(id), older, dbrow.Texts(running))
	if err == nil && claims > 0 {
		err = s.db.Q.RingInbox(ctx)
	}
	return Overlooked{Jobs: int(jobs), Grants: int(claims)}, pg.Translate(err)
}

// LostCalls lists and locks detached calls that will have no result unless the scheduler
// acts: see granting.CallFailure.
func (t *Tick) LostCalls(ctx context.Context, limit int) ([]granting.LostCall, error) {
	rows, err := t.q.LostCalls(ctx, int32(limit)) //nolint:gosec // small
	if err != nil {
		return nil, pg.Translate(err)
	}
	var lost []granting.LostCall
	for _, r := range rows {
		call := granting.LostCall{
			Ref: turnlog.CallRef{
				TurnID: turnkeeper.TurnID(r.TurnID), Attempt: int(r.Attempt),
				Key: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)},
			},
			Failure: granting.CallFailure(r.Failure), Name: r.Name, Effect: turnkeeper.Effect(r.Effect),
			OutputID: turnkeeper.OutputID(r.OutputID),
			Losses:   int(r.Losses), Limit: r.TimeLimit, WorkerID: turnkeeper.WorkerID(r.WorkerID), Alive: r.Alive,
			JobID: turnkeeper.JobID(r.JobID),
		}
		if r.Code == "" {
			lost = append(lost, call)
			continue
		}
		aside := call.AsideOf()
		if err := t.q.PutAside(ctx, string(aside.Kind), aside.ID, r.Code, t.store.db.Clean(r.Error)); err != nil {
			return nil, pg.Translate(err)
		}
	}
	return lost, pg.Translate(t.q.LookAgainAtCalls(ctx, int32(limit))) //nolint:gosec // small
}

// RunAgain makes a lost call run again: with its next attempt if it was claimed, else
// with a new job.
func (t *Tick) RunAgain(ctx context.Context, c granting.LostCall) error {
	return t.store.journals.RunAgain(ctx, t.q, c.Ref, "", !c.Alive)
}

// EndCall records the result of a lost call, and queues its turn if the turn waits.
func (t *Tick) EndCall(ctx context.Context, c granting.LostCall, r turnlog.CallResult) error {
	return pg.Translate(t.store.journals.EndCall(ctx, t.q, c.Ref, "", r))
}
