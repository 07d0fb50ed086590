package operate

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
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
	WaitingTurns int           // turns that wait for a person, a call, a sub-agent or a model

	// Of turns that ended within the window, at most the 5,000 newest.
	Ended, Succeeded, Degraded, Failed int
	Tokens                             int64

	Waits []waiting.Tally // what waiting and deferred turns wait for, by reason

	Now time.Time // by the database's clock
}

// Totals reads the figures. window is the period for those of ended turns.
func (s *Reports) Totals(ctx context.Context, window time.Duration) (Totals, error) {
	r, err := s.db.Q.Totals(ctx, window)
	if err != nil {
		return Totals{}, pg.Translate(err)
	}
	waits, err := s.waitingTurns(ctx)
	return Totals{
		Waits:   waits,
		Waiting: int(r.Waiting), Oldest: time.Duration(r.OldestSeconds * float64(time.Second)), Running: int(r.Running),
		Queued:       int(r.Queued),
		WaitingTurns: int(r.WaitingTurns), Ended: int(r.Ended), Succeeded: int(r.Good), Degraded: int(r.Degraded),
		Failed: int(r.Bad),
		Tokens: r.Tokens, Now: r.Now,
	}, err
}

// Queue reads only the figures of waiting messages and open turns. It does not count
// messages that are not due yet.
func (s *Reports) Queue(ctx context.Context) (Totals, error) {
	r, err := s.db.Q.Queue(ctx)
	if err != nil {
		return Totals{}, pg.Translate(err)
	}
	waits, err := s.waitingTurns(ctx)
	return Totals{
		Waits:   waits,
		Waiting: int(r.Waiting), Oldest: time.Duration(r.OldestSeconds * float64(time.Second)),
		Running: int(r.Running), Queued: int(r.Queued), WaitingTurns: int(r.WaitingTurns), Now: r.Now,
	}, err
}

// waitingTurns counts the turns that wait, by reason.
func (s *Reports) waitingTurns(ctx context.Context) ([]waiting.Tally, error) {
	rows, err := s.db.Q.WaitingTurns(ctx)
	return dbrow.Map(rows, func(r dbsqlc.WaitingTurnsRow) waiting.Tally {
		return waiting.Tally{Reason: waiting.Reason(r.Reason), Turns: int(r.Turns), Since: known(r.Since),
			Until: known(r.Until)}
	}), pg.Translate(err)
}

// OpenTurns lists at most limit open turns, running ones first, the longest-running
// first.
func (s *Views) OpenTurns(ctx context.Context, limit int) ([]waiting.Turn, error) {
	rows, err := s.db.Q.OpenTurns(ctx, int32(min(limit, maxLimit))) //nolint:gosec // bounded
	if err != nil {
		return nil, pg.Translate(err)
	}
	turns := dbrow.Map(rows, func(r dbsqlc.OpenTurnsRow) turnkeeper.Turn {
		t := dbrow.Turn(r.TurnkeeperTurnsNow)
		t.WorkerID = turnkeeper.WorkerID(r.Holder)
		return t
	})
	return s.withTurnWaits(ctx, turns)
}
