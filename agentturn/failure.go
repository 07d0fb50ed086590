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

// The endings of an execution, by the turn as it is then.
type endings struct {
	*task
	rounds   calls
	executed bool // a tool has started, in whichever execution
}

func (t *execution) endings() *endings {
	executed := len(t.interrupted) > 0 || t.rounds.any(func(c turnkeeper.ToolCall) bool { return c.State.Executed() })
	return &endings{t.task, t.rounds, executed}
}

// endingOf decides what an error that stopped the loop makes of the turn.
func (t *endings) endingOf(ctx context.Context, err error) *ending {
	if ctx.Err() != nil {
		return t.stopped(context.Cause(ctx))
	}
	if blocked, ok := errors.AsType[*blockedError](err); ok {
		return t.blocked(blocked)
	}
	if silent, ok := errors.AsType[*silentError](err); ok {
		t.log.Warn("the model gave no answer in its last round", zap.Error(silent.err))
		return t.capped(t.rounds.lastStop())
	}
	return t.failed(err)
}

// stopped is the end by the end of the context.
func (t *endings) stopped(cause error) *ending {
	switch {
	case errors.Is(cause, errWallTime):
		return t.outOfTime()
	case errors.Is(cause, ErrCancelled):
		return &ending{state: turnkeeper.TurnCancelled, stop: turnkeeper.StopCancelled, reply: says(replyCancelled)}
	default:
		return &ending{state: turnkeeper.TurnQueued, outcome: turnkeeper.Outcome{Error: cause.Error()}}
	}
}

// failed is the end by a model that could not be called, by a request that
// could not be built, or by a panic.
func (t *endings) failed(err error) *ending {
	class := classOf(err)
	f := t.failure(faultIn(err))
	o := turnkeeper.Outcome{ErrorClass: class, Error: err.Error()}
	if service, ok := errors.AsType[*serviceError](err); ok {
		f.Pause, o.WaitsFor = service.pause, service.waitsFor
	}
	return t.judged(f, turnkeeper.StopInferenceError, o)
}

// failure is what the turn itself knows of its failure.
func (t *endings) failure(fault Fault) Failure {
	return Failure{
		Fault: fault, Ran: t.executed, Effects: t.rounds.effected(),
		Counted: t.record.Message.Faults, MaxAttempts: t.bounds.MaxAttempts,
		Waited: t.record.Waited + time.Since(t.began), GiveUpAfter: t.bounds.GiveUpAfter,
	}
}

// judged is the end of a turn that cannot go on.
func (t *endings) judged(f Failure, stop turnkeeper.StopReason, o turnkeeper.Outcome) *ending {
	v := f.Verdict()
	if v.Degraded {
		t.log.Warn("turn degraded by an error", zap.String("class", o.ErrorClass), zap.String("error", o.Error))
		e := t.degraded(stop)
		o.WaitsFor = nil
		e.outcome = o
		return e
	}
	o.Retry, o.Counted, o.Backoff = v.Retry, v.Counted, v.Backoff
	e := &ending{state: turnkeeper.TurnFailed, stop: stop, outcome: o}
	if !o.Retry {
		e.outcome.WaitsFor = nil
		e.reply = func([]turnkeeper.Round) reply { return failedReply(o.ErrorClass, t.def.Replies) }
	}
	t.log.Warn("turn failed", zap.String("class", o.ErrorClass), zap.Bool("retry", o.Retry), zap.Bool("counted", o.Counted),
		zap.Duration("backoff", o.Backoff), zap.String("error", o.Error))
	return e
}

// outOfTime is the end by the wall time. Where no tool has run there is nothing to
// tell, and the message is tried again, a bounded number of times.
func (t *endings) outOfTime() *ending {
	if t.executed {
		return t.capped(turnkeeper.StopMaxDuration)
	}
	t.logCap("max turn duration reached, completing turn")
	return t.judged(t.failure(FaultTime), turnkeeper.StopMaxDuration, turnkeeper.Outcome{
		ErrorClass: string(turnkeeper.StopMaxDuration), Error: "the turn's time was over before the model had answered",
	})
}

// The classes of errors that are not a model's.
const (
	classInternal = "internal"
	classBudget   = "budget"
)

// faultIn says whose fault an error is that stopped the loop.
func faultIn(err error) Fault {
	if _, ok := errors.AsType[*serviceError](err); ok {
		return FaultService
	}
	e, ok := errors.AsType[*inference.Error](err)
	switch {
	case !ok:
		return FaultInside
	case e.Class == inference.ClassBadOutput:
		return FaultAnswer
	default:
		return FaultMessage
	}
}

func classOf(err error) string {
	if e, ok := errors.AsType[*serviceError](err); ok {
		return e.class
	}
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
func (t *endings) blocked(b *blockedError) *ending {
	o := turnkeeper.Outcome{ErrorClass: classBudget, Error: b.Error()}
	t.log.Warn("model call blocked by the budget", zap.String("scope", b.Scope), zap.String("reason", b.Reason))
	if b.Scope != "day" || b.Never || t.executed {
		return t.judged(t.failure(FaultBound), turnkeeper.StopBudget, o)
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
