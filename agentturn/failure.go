package agentturn

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
)

// endingOf decides what an error that stopped the loop makes of the turn.
func (t *turn) endingOf(ctx context.Context, err error) *ending {
	if ctx.Err() != nil {
		return t.stopped(context.Cause(ctx))
	}
	if blocked, ok := errors.AsType[*blockedError](err); ok {
		return t.blocked(blocked)
	}
	if silent, ok := errors.AsType[*silentError](err); ok {
		t.log.Warn("the model gave no answer in its last round", zap.Error(silent.err))
		return t.capped(t.lastRoundStop())
	}
	return t.failed(err)
}

// stopped is the end by the end of the context.
func (t *turn) stopped(cause error) *ending {
	switch {
	case errors.Is(cause, errWallTime):
		return t.capped(turnkeeper.StopMaxDuration)
	case errors.Is(cause, ErrCancelled):
		return &ending{state: turnkeeper.TurnCancelled, stop: turnkeeper.StopCancelled, reply: says(replyCancelled)}
	default:
		return &ending{state: turnkeeper.TurnQueued, outcome: turnkeeper.Outcome{Error: cause.Error()}}
	}
}

// failed is the end by a model that could not be called, by a request that
// could not be built, or by a panic. Once a tool has started the message is
// never tried again.
func (t *turn) failed(err error) *ending {
	class := classOf(err)
	o := turnkeeper.Outcome{ErrorClass: class, Error: err.Error()}
	if t.anyExecuted() {
		t.log.Warn("turn degraded by an error", zap.String("class", class), zap.Error(err))
		e := t.degraded(turnkeeper.StopInferenceError)
		e.outcome = o
		return e
	}
	o.Retry = t.record.Turn.Attempt < t.bounds.MaxAttempts
	e := &ending{state: turnkeeper.TurnFailed, stop: turnkeeper.StopInferenceError, outcome: o}
	if !o.Retry {
		e.reply = func([]turnkeeper.Round) reply { return failedReply(class, t.def.Replies) }
	}
	t.log.Warn("turn failed", zap.String("class", class), zap.Bool("retry", o.Retry), zap.Error(err))
	return e
}

// The classes of errors that are not a model's.
const (
	classInternal = "internal"
	classBudget   = "budget"
)

func classOf(err error) string {
	if e, ok := errors.AsType[*inference.Error](err); ok {
		return string(e.Class)
	}
	return classInternal
}

// A blockedError is a model call that the budget did not allow.
type blockedError struct{ Reservation }

func (e *blockedError) Error() string { return cmp.Or(e.Reason, "the budget is used up") }

// blocked is the end by the budget. The day's budget opens again, which helps where
// the call fits into one; a turn's never does.
func (t *turn) blocked(b *blockedError) *ending {
	o := turnkeeper.Outcome{ErrorClass: classBudget, Error: b.Error()}
	t.log.Warn("model call blocked by the budget", zap.String("scope", b.Scope), zap.String("reason", b.Reason))
	if b.Scope != "day" || b.Never || t.anyExecuted() {
		e := t.degraded(turnkeeper.StopBudget)
		e.outcome = o
		return e
	}
	o.Backoff = b.Retry
	if o.Backoff <= 0 {
		o.Backoff = defaultDeferral
	}
	return &ending{state: turnkeeper.TurnQueued, outcome: o}
}

// defaultDeferral is how long a turn is put off by a budget that does not say.
const defaultDeferral = time.Minute

// A silentError is an error of the announced last round that means that the
// model gave no answer.
type silentError struct{ err error }

func (e *silentError) Error() string { return e.err.Error() }
func (e *silentError) Unwrap() error { return e.err }
