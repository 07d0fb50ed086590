package memory

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
func (j *Journal) write(ctx context.Context, steps int64, events int, attempt func(context.Context) error) error {
	wait := firstRetry
	for {
		err := attempt(ctx)
		if err == nil {
			j.advance(steps, events)
			return nil
		}
		if errors.Is(err, errKeyTaken) {
			return fmt.Errorf("%w: %w", turnkeeper.ErrJournalMoved, err)
		}
		// A refusal may be the echo of our own write: see storage.
		refused := errors.Is(err, turnkeeper.ErrJournalMoved) || errors.Is(err, turnkeeper.ErrFenced)
		echo := refused && wait > firstRetry
		if !errors.Is(err, ErrAway) && !echo && !endedOnTheWay(ctx, err) {
			return err
		}
		written, settled := j.readBack(ctx, steps)
		if settled != nil {
			return settled
		}
		if written {
			j.advance(steps, events)
			return nil
		}
		if echo {
			return err
		}
		if j.s.has(BugNumbersLost) {
			j.lastSeq += int64(events)
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
		wait = min(wait*2, slowRetry)
	}
}

func (j *Journal) advance(steps int64, events int) {
	j.entries += steps
	j.lastSeq += int64(events)
}

// endedOnTheWay says that the caller's time ended while a write was under way:
// whether it was done must still be found out.
func endedOnTheWay(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// readBackGrace bounds the question whether a write was done when the writer's
// own time is over.
const readBackGrace = 3 * time.Second

// readBack says whether the write under way is on record. An error means that
// the grant is no longer the turn's, or that the time to find out is over.
func (j *Journal) readBack(ctx context.Context, steps int64) (written bool, err error) {
	if j.s.has(BugLostAnswerRedone) {
		j.forget()
		return false, nil
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), readBackGrace, context.Cause(ctx))
		defer cancel()
	}
	wait := firstRetry
	for {
		err := j.conn.ask(ctx, "read back", func() (err error) {
			written, err = j.onRecord(steps)
			return err
		})
		if err == nil || !errors.Is(err, ErrAway) {
			return written, err
		}
		if !pause(ctx, wait) {
			return false, errors.Join(context.Cause(ctx), err)
		}
		wait = min(wait*2, slowRetry)
	}
}

func (j *Journal) onRecord(steps int64) (bool, error) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	row := j.s.state.turn(j.grant.TurnID)
	switch {
	case row.Token != j.grant.Token:
		return false, turnkeeper.ErrFenced
	case row.entries == j.entries+steps:
		return true, nil
	case row.State != turnkeeper.TurnRunning || row.GrantID != j.grant.GrantID:
		return false, turnkeeper.ErrFenced
	case row.entries == j.entries:
		return false, nil
	default:
		return false, turnkeeper.ErrJournalMoved
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
