package scheduler

import (
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/granting"
)

// A tick is one transaction, so one row that cannot be read or written would undo it for all. Most ticks meet none, and
// run without savepoints. The tick after one that failed, and each tick that tries a row again, run every part by
// itself: what fails is set aside, and the rest is committed.

// A part is a piece of work of the tick.
type part = func(context.Context, Tick, granting.Snapshot, *Report) error

// stepGrants is the step that grants turns.
const stepGrants = "grants"

// step runs a part that is done for many rows at once. If it fails as a whole, the other steps are done, and it is
// tried again soon.
func (s *Scheduler) step(ctx context.Context, t Tick, sit granting.Snapshot, report *Report, name string,
	work part) error {
	if !s.apart {
		return work(ctx, t, sit, report)
	}
	before := *report
	failed, err := t.Try(ctx, []granting.Subject{{Kind: granting.AsideStep, ID: name}}, func() error {
		return work(ctx, t, sit, report)
	})
	if failed != nil {
		*report = before
		report.Failed = true
		if name == stepGrants {
			s.release() // what it reserved is not granted
		}
	}
	return err
}

// each runs the work on one row. done reports whether it was done: if not, the row is set aside.
func (s *Scheduler) each(ctx context.Context, t Tick, subject granting.Subject,
	work func() error) (done bool, err error) {
	if !s.apart {
		return true, work()
	}
	failed, err := t.Try(ctx, []granting.Subject{subject}, work)
	return failed == nil && err == nil, err
}

// dispatch grants the candidates, and returns those that were granted. In a tick whose parts are tried apart it halves
// them until it has found those that fail.
func (s *Scheduler) dispatch(ctx context.Context, t Tick, ready []granting.Candidate) ([]granting.Candidate, error) {
	if !s.apart {
		return ready, t.Dispatch(ctx, ready)
	}
	subjects := make([]granting.Subject, len(ready))
	for i, r := range ready {
		subjects[i] = r.AsideOf()
	}
	failed, err := t.Try(ctx, subjects, func() error { return t.Dispatch(ctx, ready) })
	switch {
	case err != nil:
		return nil, err
	case failed == nil:
		return ready, nil
	case len(ready) == 1:
		return nil, nil
	}
	half := len(ready) / 2
	granted, err := s.dispatch(ctx, t, ready[:half:half])
	if err != nil {
		return nil, err
	}
	more, err := s.dispatch(ctx, t, ready[half:])
	return append(granted, more...), err
}

// failures are ticks that failed in a row.
type failures struct {
	noted  string    // the newest error that was logged
	logged time.Time // when
	known  bool      // the store has recorded that ticks fail
}

// failureLogPause is the time after which an error of ticks is logged again.
const failureLogPause = time.Minute

// noteFailureTime is the timeout of recording a failure. The store may be away.
const noteFailureTime = 2 * time.Second

// noteFailure logs and records that a tick failed. Later ones that fail alike are logged once a minute.
func (s *Scheduler) noteFailure(ctx context.Context, err error) {
	s.logFailure("a scheduler tick failed, trying again", err)
	ctx, cancel := context.WithTimeout(ctx, noteFailureTime)
	defer cancel()
	s.failed.known = s.Store.TickFailed(ctx, err) == nil || s.failed.known
}

// noteSuccess records that a tick succeeded, if others failed before it.
func (s *Scheduler) noteSuccess(ctx context.Context) {
	if s.failed.known {
		if err := s.Store.TickFailed(ctx, nil); err != nil {
			s.logFailure("ticks of the scheduler succeed again, but that could not be recorded, trying again", err)
			return
		}
	}
	s.failed.known, s.failed.noted = false, ""
}

// logFailure logs an error that differs from the last one, and the same one once a minute.
func (s *Scheduler) logFailure(say string, err error) {
	text := say + err.Error()
	if text == s.failed.noted && time.Since(s.failed.logged) < failureLogPause {
		return
	}
	s.failed.noted, s.failed.logged = text, time.Now()
	s.Log.Warn(say, zap.Error(err))
}
