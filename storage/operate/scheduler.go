package operate

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// SchedulerSettings are the scheduler's state and the settings that operators changed.
type SchedulerSettings struct {
	PausedAt      time.Time // zero: not paused
	PausedReason  string
	PollInterval  time.Duration // 0: as configured
	MaxDispatches int           // 0: as configured
	LastTickAt    time.Time     // on record
	HoldUntil     time.Time     // zero: no hold-off
	HoldReason    string
}

// SchedulerSettings reads the scheduler's state and settings.
func (s *Reports) SchedulerSettings(ctx context.Context) (SchedulerSettings, error) {
	row, err := s.db.Q.Settings(ctx)
	return SchedulerSettings{
		PausedAt: dbrow.OrZero(row.PausedAt), PausedReason: dbrow.OrZero(row.PausedReason),
		PollInterval:  dbrow.OrZero(row.PollInterval),
		MaxDispatches: int(dbrow.OrZero(row.MaxDispatchesPerTick)), LastTickAt: dbrow.OrZero(row.LastTickAt),
		HoldUntil: dbrow.OrZero(row.HoldUntil), HoldReason: dbrow.OrZero(row.HoldReason),
	}, pg.Translate(err)
}

// PauseScheduler stops all schedulers of this database from granting turns, until
// ResumeScheduler. Running turns continue.
func (s *Control) PauseScheduler(ctx context.Context, reason string) error {
	return pg.Translate(s.db.Q.Pause(ctx, reason))
}

// ResumeScheduler undoes PauseScheduler.
func (s *Control) ResumeScheduler(ctx context.Context) error {
	if err := s.db.Q.Resume(ctx); err != nil {
		return pg.Translate(err)
	}
	return pg.Translate(s.db.Q.RingInbox(ctx))
}

// EndHold ends a hold-off of the schedulers of this database, and prevents a new one for the
// same cause. It is safe only if the database has lost no commit, or if no worker still runs
// that had turns before.
func (s *Control) EndHold(ctx context.Context) error {
	return pg.Translate(pgx.BeginFunc(ctx, s.db.Pool, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		if err := q.AcceptDatabase(ctx); err != nil {
			return err
		}
		return errors.Join(q.EndHold(ctx), q.TryAllModels(ctx), q.RingInbox(ctx))
	}))
}

// SetScheduler changes the scheduler's poll interval and grants per tick, also while it
// runs. 0 leaves a value unchanged.
func (s *Control) SetScheduler(ctx context.Context, poll time.Duration, maxDispatches int) error {
	var p *time.Duration
	var n *int32
	if poll > 0 {
		p = &poll
	}
	if maxDispatches > 0 {
		m := int32(min(maxDispatches, 10_000))
		n = &m
	}
	if err := s.db.Q.SetIntervals(ctx, p, n); err != nil {
		return pg.Translate(err)
	}
	return pg.Translate(s.db.Q.RingInbox(ctx))
}
