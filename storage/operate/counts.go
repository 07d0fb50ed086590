package operate

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Figures are what an operator looks at first.
type Figures struct {
	Waiting   int           // messages in the inbox; counted up to 100,000
	Oldest    time.Duration // the oldest of them is due for so long; negative: it comes due in so long
	Running   int           // turns
	Queued    int           // turns that wait for a worker
	Elsewhere int           // turns that wait for calls

	// Of turns that ended within the window, at most the 5,000 newest.
	Ended, Succeeded, Degraded, Failed int
	Tokens                             int64

	Now time.Time // by the database's clock
}

// Figures reads them, the rates over the window.
func (s *Reports) Figures(ctx context.Context, window time.Duration) (Figures, error) {
	r, err := s.db.Q.Figures(ctx, window)
	return Figures{
		Waiting: int(r.Waiting), Oldest: time.Duration(r.OldestSeconds * float64(time.Second)), Running: int(r.Running), Queued: int(r.Queued),
		Elsewhere: int(r.Elsewhere), Ended: int(r.Ended), Succeeded: int(r.Good), Degraded: int(r.Degraded), Failed: int(r.Bad),
		Tokens: r.Tokens, Now: r.Now,
	}, pg.Translate(err)
}

// Queue are the figures of what waits and runs; the others are zero. Messages
// that are not due yet are not counted.
func (s *Reports) Queue(ctx context.Context) (Figures, error) {
	r, err := s.db.Q.Queue(ctx)
	return Figures{
		Waiting: int(r.Waiting), Oldest: time.Duration(r.OldestSeconds * float64(time.Second)),
		Running: int(r.Running), Queued: int(r.Queued), Elsewhere: int(r.Elsewhere),
	}, pg.Translate(err)
}

// OpenTurns lists turns that run, wait or are queued, at most limit: those that run
// come first, longest first.
func (s *Views) OpenTurns(ctx context.Context, limit int) ([]turnkeeper.Turn, error) {
	rows, err := s.db.Q.OpenTurns(ctx, int32(min(limit, maxLimit))) //nolint:gosec // bounded
	if err != nil {
		return nil, pg.Translate(err)
	}
	turns := dbrow.Map(rows, func(r dbsqlc.OpenTurnsRow) turnkeeper.Turn {
		t := dbrow.Turn(r.TurnkeeperTurn)
		t.WorkerID = turnkeeper.WorkerID(r.Holder)
		return t
	})
	return turns, s.withHolders(ctx, turns)
}
