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

// A Retry calls a Provider until it answers. It is the only retry loop around model calls:
// Providers and their HTTP clients must not retry. It retries transient errors after a pause:
// RetryAfter if the provider set it, else a random time below a limit that doubles from
// Backoff to MaxBackoff. It returns an error at once if it is Lasting, or if the pause would
// not end before ctx's deadline: a caller should not hold a slot while it waits.
//
// A Retry sets no timeout on a call: an answer that still streams is not cut off before ctx
// ends. A Provider must give up a call that sends nothing.
//
// The zero value of every field but Provider is its default. A Retry is a Provider. It is
// safe for concurrent use if its functions are.
type Retry struct {
	Provider Provider

	MaxAttempts  int           // maximum number of calls; 0: 4
	MaxBadOutput int           // maximum number of retries after ClassBadOutput; 0: 2; negative: none
	Backoff      time.Duration // limit of the first pause; 0: 0.5 s
	MaxBackoff   time.Duration // limit of a pause without RetryAfter; 0: 8 s

	// Jitter returns the share of the limit to pause, in [0, 1). nil: random.
	Jitter func() float64

	// OnRetry, if not nil, is called before the pause after each failed attempt that
	// another one follows. The deltas of the failed attempt are then void. attempt counts
	// from 1, in a Chain over all models. There is no pause before the next model of a
	// Chain. OnRetry is not called for the failure that Generate returns.
	OnRetry func(attempt int, err *Error, wait time.Duration)
}

var _ Provider = Retry{}

// Generate returns the first answer, with the number of attempts. The error is that of the
// last attempt, or the cause of ctx if ctx has ended.
func (r Retry) Generate(ctx context.Context, req Request, onDelta func(Delta)) (Response, error) {
	l := &loop{Retry: r}
	res, err := l.run(ctx, r.Provider, tries{max: l.maxAttempts()}, req, onDelta)
	if err != nil {
		return Response{}, err
	}
	return l.complete(res), nil
}

// A loop is the state of one Generate of a Retry or a Chain.
type loop struct {
	Retry
	attempts int // of all models
}

// tries says how often one model is called.
type tries struct {
	max    int
	always bool // also after errors that are not transient, if the request may have caused them
}

// again reports whether another attempt may follow the given one.
func (t tries) again(failure *Error, attempt int) bool {
	if failure.Lasting() || attempt >= t.max {
		return false
	}
	return failure.Transient() || t.always && failure.ByRequest && !failure.NoRetry
}

// run calls one model until it answers.
func (l *loop) run(ctx context.Context, p Provider, tries tries, req Request, onDelta func(Delta)) (Response, error) {
	if ctx.Err() != nil {
		return Response{}, context.Cause(ctx)
	}
	badOutput := 0
	for attempt := 1; ; attempt++ {
		l.attempts++
		res, err := p.Generate(ctx, req, onDelta)
		if err == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			return Response{}, context.Cause(ctx)
		}
		failure := asError(err, req.Model)
		if failure.Class == ClassBadOutput {
			badOutput++
		}
		wait := l.pause(attempt, failure)
		if !tries.again(failure, attempt) || badOutput > l.maxBadOutput() || !fits(ctx, wait) {
			return Response{}, l.withAttempts(failure)
		}
		l.report(failure, wait)
		if err := pause.For(ctx, wait); err != nil {
			return Response{}, err
		}
	}
}

// asError returns err as a new *Error, which the caller may change.
func asError(err error, model string) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		clone := *e
		return &clone
	}
	return &Error{Class: ClassTransport, Model: model, Detail: err.Error(), Err: err, ByRequest: true}
}

func (l *loop) report(failure *Error, wait time.Duration) {
	if l.OnRetry != nil {
		l.OnRetry(l.attempts, l.withAttempts(failure), wait)
	}
}

// complete returns the response with the number of attempts.
func (l *loop) complete(res Response) Response {
	res.Attempts = l.attempts
	return res
}

// withAttempts sets the number of attempts of a failure.
func (l *loop) withAttempts(failure *Error) *Error {
	failure.Attempts = l.attempts
	return failure
}

// pause returns the pause after an attempt, counted from 1.
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

// fits reports whether a pause ends before ctx's deadline.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || wait < time.Until(deadline)
}
