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
// ResumeScheduler. Running turns continue. It may fail with ErrTickGoesOn.
func (s *Control) PauseScheduler(ctx context.Context, reason string) error {
	if err := s.db.Q.Pause(ctx, reason); err != nil {
		return pg.Translate(err)
	}
	return afterTick(ctx, s.db)
}

// ErrTickGoesOn means that a change is saved, but that the tick in progress, which may have begun before it, has not
// ended in time, as when its process is stopped.
var ErrTickGoesOn = errors.New("the change is saved, but a tick of the scheduler that began before it has not ended, " +
	"and may still act as before the change; \"turnctl scheduler\" shows the last tick")

// afterTick makes the scheduler follow a change that is committed: it waits until no tick is in progress that may have
// read what was there before, and wakes the scheduler. What is done after it has returned, such as sending a message,
// meets only ticks that know of the change. It fails with ErrTickGoesOn after the lock timeout.
func afterTick(ctx context.Context, db *pg.DB) error {
	waited := pg.Translate(db.Q.AwaitTick(ctx))
	if pg.LockRefused(waited) {
		waited = ErrTickGoesOn
	}
	return errors.Join(waited, pg.Translate(db.Q.RingInbox(ctx))) // last: a tick that meets the lock does nothing
}

// ResumeScheduler undoes PauseScheduler.
func (s *Control) ResumeScheduler(ctx context.Context) error {
	if err := s.db.Q.Resume(ctx); err != nil {
		return pg.Translate(err)
	}
	return pg.Translate(s.db.Q.RingInbox(ctx))
}

// EndHold ends a hold-off of the schedulers of this database, and prevents a new one for the
// same cause, also by a tick in progress. It is safe only if the database has lost no commit, or if no worker still
// runs that had turns before. It fails with ErrHeldUp if the tick in progress does not end.
func (s *Control) EndHold(ctx context.Context) error {
	return heldUp(pgx.BeginFunc(ctx, s.db.Pool, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		if err := q.AwaitTick(ctx); err != nil {
			return err
		}
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
