package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnkeeper"
)

const (
	firstRetry = 50 * time.Millisecond
	slowRetry  = time.Second
)

// write runs one attempt after another until the entry is on record or cannot
// be any more.
func (w *TurnWriter) write(ctx context.Context, steps int64, events int, attempt func(context.Context) error) error {
	wait := firstRetry
	for {
		err := attempt(ctx)
		if err == nil {
			w.advance(steps, events)
			return nil
		}
		if keyTaken(err) {
			return fmt.Errorf("%w: %w", turnkeeper.ErrJournalMoved, err)
		}
		// A refusal may be the echo of our own write: its commit went through
		// and the answer was lost, so that the attempt after it finds itself,
		// or the turn that it has ended.
		refused := errors.Is(err, turnkeeper.ErrJournalMoved) || errors.Is(err, turnkeeper.ErrFenced)
		echo := refused && wait > firstRetry
		if !uncertain(err) && !echo && !endedOnTheWay(ctx, err) {
			return err
		}
		written, settled := w.readBack(ctx, steps)
		if settled != nil {
			return settled
		}
		if written {
			w.advance(steps, events)
			return nil
		}
		if echo {
			return err
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
		wait = min(wait*2, slowRetry)
	}
}

func (w *TurnWriter) advance(steps int64, events int) {
	w.entries += steps
	w.lastSeq += int64(events)
}

// endedOnTheWay says that the caller's time ended while a write was under way:
// whether it was done must still be found out.
func endedOnTheWay(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, ctx.Err())
}

// readBackGrace bounds the question whether a write was done when the
// writer's own time is over.
const readBackGrace = 3 * time.Second

// readBack says whether the write under way is on record. An error means that
// the grant is no longer the turn's, or that the time to find out is over.
func (w *TurnWriter) readBack(ctx context.Context, steps int64) (written bool, err error) {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), readBackGrace, context.Cause(ctx))
		defer cancel()
	}
	wait := firstRetry
	for {
		row, err := w.store.q.ReadBack(ctx, int64(w.grant.TurnID))
		switch err = translate(err); {
		case err == nil && row.Token != w.grant.Token:
			return false, turnkeeper.ErrFenced
		case err == nil && row.Entries == w.entries+steps:
			return true, nil
		case err == nil && (row.State != string(turnkeeper.TurnRunning) || orZero(row.GrantID) != string(w.grant.GrantID)):
			return false, turnkeeper.ErrFenced
		case err == nil && row.Entries == w.entries:
			return false, nil
		case err == nil:
			return false, turnkeeper.ErrJournalMoved
		case !uncertain(err) || !pause(ctx, wait):
			return false, errors.Join(context.Cause(ctx), err)
		}
		wait = min(wait*2, slowRetry)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
