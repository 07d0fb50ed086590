package inference

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"turnkeeper/internal/pause"
)

// Defaults of a Retry.
const (
	defaultMaxAttempts  = 4
	defaultMaxBadOutput = 2
	defaultBackoff      = 500 * time.Millisecond
	defaultMaxBackoff   = 8 * time.Second
)

// A Retry calls a Provider until it answers, for as long as that is sensible:
// it is the one retry loop around model calls, so Providers and their HTTP
// clients must not retry. Transient errors are retried after a pause: what the
// provider asked for (RetryAfter), else a random time below a limit that
// doubles from Backoff to MaxBackoff. A pause that would not end before ctx's
// deadline is not begun: the error is returned at once.
//
// A call itself has no limit here: one whose answer still comes is never cut off before ctx
// ends. A Provider gives up one that sends nothing.
//
// The zero value of every field but Provider is its default. A Retry is a
// Provider; it is safe for concurrent use when its functions are.
type Retry struct {
	Provider Provider

	MaxAttempts  int           // calls of the model; 0: 4
	MaxBadOutput int           // of these, after a ClassBadOutput; 0: 2; negative: none
	Backoff      time.Duration // limit of the first pause; 0: 0.5 s
	MaxBackoff   time.Duration // limit of every pause that the provider did not ask for; 0: 8 s

	// Jitter gives the part of the limit to pause, in [0, 1). nil: random.
	Jitter func() float64

	// OnRetry, if not nil, is called after each failed attempt that another
	// one will follow, before the pause: what the attempt streamed is void.
	// attempt counts from 1; in a Chain through all of its models, where a
	// move to the next model has no pause. It is not called for the failure
	// that Generate returns.
	OnRetry func(attempt int, err *Error, wait time.Duration)
}

var _ Provider = Retry{}

// Generate returns the first answer, with its number of attempts. An error is
// the last attempt's, or the cause of ctx once ctx has ended.
func (r Retry) Generate(ctx context.Context, req Request, onDelta func(Delta)) (Response, error) {
	l := &loop{Retry: r}
	res, err := l.run(ctx, r.Provider, l.maxAttempts(), req, onDelta)
	if err != nil {
		return Response{}, err
	}
	return l.total(res), nil
}

// A loop is the state of one Generate: of a Retry, or of a whole Chain.
type loop struct {
	Retry
	attempts int // through all models
}

// run calls one model, at most so many times, until it answers or gives up.
func (l *loop) run(ctx context.Context, p Provider, tries int, req Request, onDelta func(Delta)) (Response, error) {
	if ctx.Err() != nil {
		return Response{}, context.Cause(ctx)
	}
	badOutput := 0
	for attempt := 1; ; attempt++ {
		res, failure := l.attempt(ctx, p, req, onDelta)
		if failure == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			return Response{}, context.Cause(ctx)
		}
		if failure.Class == ClassBadOutput {
			badOutput++
		}
		wait := l.pause(attempt, failure)
		if !failure.Transient() || attempt >= tries || badOutput > l.maxBadOutput() || !fits(ctx, wait) {
			return Response{}, l.spent(failure)
		}
		l.report(failure, wait)
		if err := pause.For(ctx, wait); err != nil {
			return Response{}, err
		}
	}
}

// attempt makes one call and turns whatever went wrong into an *Error.
func (l *loop) attempt(ctx context.Context, p Provider, req Request, onDelta func(Delta)) (Response, *Error) {
	l.attempts++
	res, err := p.Generate(ctx, req, onDelta)
	if err == nil {
		return res, nil
	}
	return Response{}, asError(err, req.Model)
}

// asError gives err as an *Error of its own, which the caller may change.
func asError(err error, model string) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		own := *e
		return &own
	}
	return &Error{Class: ClassTransport, Model: model, Detail: err.Error(), Err: err}
}

func (l *loop) report(failure *Error, wait time.Duration) {
	if l.OnRetry != nil {
		l.OnRetry(l.attempts, l.spent(failure), wait)
	}
}

// total sets what is known of an answer only at the end.
func (l *loop) total(res Response) Response {
	res.Attempts = l.attempts
	return res
}

// spent is a failure with the number of attempts until it.
func (l *loop) spent(failure *Error) *Error {
	failure.Attempts = l.attempts
	return failure
}

// pause is how long to wait after the attempt, which counts from 1.
func (l *loop) pause(attempt int, failure *Error) time.Duration {
	if failure.RetryAfter > 0 {
		return failure.RetryAfter
	}
	limit := orDefault(l.MaxBackoff, defaultMaxBackoff)
	if d := orDefault(l.Backoff, defaultBackoff) << min(attempt-1, 30); d > 0 {
		limit = min(limit, d)
	}
	jitter := l.Jitter
	if jitter == nil {
		jitter = rand.Float64
	}
	return time.Duration(jitter() * float64(limit))
}

func (l *loop) maxAttempts() int { return orDefault(l.MaxAttempts, defaultMaxAttempts) }

func (l *loop) maxBadOutput() int { return max(0, orDefault(l.MaxBadOutput, defaultMaxBadOutput)) }

func orDefault[T int | time.Duration](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

// fits says that a pause ends while ctx has time left.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || wait < time.Until(deadline)
}
