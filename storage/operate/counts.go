package operate

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Totals are an overview for operators.
type Totals struct {
	Waiting      int           // messages in the inbox; counted up to 100,000
	Oldest       time.Duration // since the oldest of them is due; negative: until it is due
	Running      int           // turns
	Queued       int           // turns that wait for a worker
	WaitingTurns int           // turns that wait for calls

	// Of turns that ended within the window, at most the 5,000 newest.
	Ended, Succeeded, Degraded, Failed int
	Tokens                             int64

	Now time.Time // by the database's clock
}

// Totals reads the figures. window is the period for those of ended turns.
func (s *Reports) Totals(ctx context.Context, window time.Duration) (Totals, error) {
	r, err := s.db.Q.Totals(ctx, window)
	return Totals{
		Waiting: int(r.Waiting), Oldest: time.Duration(r.OldestSeconds * float64(time.Second)), Running: int(r.Running), Queued: int(r.Queued),
		WaitingTurns: int(r.WaitingTurns), Ended: int(r.Ended), Succeeded: int(r.Good), Degraded: int(r.Degraded), Failed: int(r.Bad),
		Tokens: r.Tokens, Now: r.Now,
	}, pg.Translate(err)
}

// Queue reads only the figures of waiting messages and open turns. It does not count
// messages that are not due yet.
func (s *Reports) Queue(ctx context.Context) (Totals, error) {
	r, err := s.db.Q.Queue(ctx)
	return Totals{
		Waiting: int(r.Waiting), Oldest: time.Duration(r.OldestSeconds * float64(time.Second)),
		Running: int(r.Running), Queued: int(r.Queued), WaitingTurns: int(r.WaitingTurns),
	}, pg.Translate(err)
}

// OpenTurns lists at most limit open turns, running ones first, the longest-running
// first.
func (s *Views) OpenTurns(ctx context.Context, limit int) ([]turnkeeper.Turn, error) {
	rows, err := s.db.Q.OpenTurns(ctx, int32(min(limit, maxLimit))) //nolint:gosec // bounded
	if err != nil {
		return nil, pg.Translate(err)
	}
	turns := dbrow.Map(rows, func(r dbsqlc.OpenTurnsRow) turnkeeper.Turn {
		t := dbrow.Turn(r.TurnkeeperTurnsNow)
		t.WorkerID = turnkeeper.WorkerID(r.Holder)
		return t
	})
	return turns, s.withHolders(ctx, turns)
}
