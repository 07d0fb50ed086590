package inference_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
)

var (
	answer     = inference.Response{Text: "hello"}
	overloaded = &inference.Error{Class: inference.ClassOverloaded, Status: 503}
)

func fail(class inference.Class) inferencetest.Step {
	return inferencetest.Fail(&inference.Error{Class: class})
}

// upper makes every pause as long as possible.
func upper() float64 { return 1 }

func TestRetryStopsWhereRetryingIsNoUse(t *testing.T) {
	type outcome struct {
		Calls int
		Class inference.Class // empty: answered
	}
	again := func(n int, class inference.Class) []inferencetest.Step {
		var steps []inferencetest.Step
		for range n {
			steps = append(steps, fail(class))
		}
		return append(steps, inferencetest.Answer(answer))
	}
	noRetry := &inference.Error{Class: inference.ClassOverloaded, NoRetry: true}
	cases := map[string]struct {
		steps []inferencetest.Step
		retry inference.Retry
		want  outcome
	}{
		"answered at once":            {steps: again(0, ""), want: outcome{Calls: 1}},
		"rate limited, then answered": {steps: again(1, inference.ClassRateLimited), want: outcome{Calls: 2}},
		"overloaded three times":      {steps: again(3, inference.ClassOverloaded), want: outcome{Calls: 4}},
		"overloaded four times": {steps: again(4, inference.ClassOverloaded),
			want: outcome{4, inference.ClassOverloaded}},
		"transport":        {steps: again(2, inference.ClassTransport), want: outcome{Calls: 3}},
		"bad output twice": {steps: again(2, inference.ClassBadOutput), want: outcome{Calls: 3}},
		"bad output three times": {steps: again(3, inference.ClassBadOutput),
			want: outcome{3, inference.ClassBadOutput}},
		"bad output is not to be retried": {steps: again(1, inference.ClassBadOutput),
			retry: inference.Retry{MaxBadOutput: -1}, want: outcome{1, inference.ClassBadOutput}},
		"auth": {steps: again(1, inference.ClassAuth),
			want: outcome{1, inference.ClassAuth}},
		"quota": {steps: again(1, inference.ClassQuota),
			want: outcome{1, inference.ClassQuota}},
		"not found": {steps: again(1, inference.ClassNotFound),
			want: outcome{1, inference.ClassNotFound}},
		"invalid": {steps: again(1, inference.ClassInvalid),
			want: outcome{1, inference.ClassInvalid}},
		"context overflow": {steps: again(1, inference.ClassContextOverflow),
			want: outcome{1, inference.ClassContextOverflow}},
		"refused": {steps: again(1, inference.ClassRefused),
			want: outcome{1, inference.ClassRefused}},
		"the provider says not to retry": {steps: []inferencetest.Step{inferencetest.Fail(noRetry)},
			want: outcome{1, inference.ClassOverloaded}},
		"an error that nobody classified": {steps: []inferencetest.Step{inferencetest.Fail(errors.New("broken pipe")),
			inferencetest.Answer(answer)}, want: outcome{Calls: 2}},
		"a bound of two attempts": {steps: again(2, inference.ClassOverloaded),
			retry: inference.Retry{MaxAttempts: 2}, want: outcome{2, inference.ClassOverloaded}},
		"transient first, then final": {steps: []inferencetest.Step{fail(inference.ClassTransport),
			fail(inference.ClassInvalid)}, want: outcome{2, inference.ClassInvalid}},
		"bad output between other failure": {steps: []inferencetest.Step{fail(inference.ClassBadOutput),
			fail(inference.ClassTransport), fail(inference.ClassBadOutput), inferencetest.Answer(answer)},
			want: outcome{Calls: 4}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := inferencetest.NewScript(tc.steps...)
				retry := tc.retry
				retry.Provider = p
				res, err := retry.Generate(t.Context(), inference.Request{Model: "m"}, nil)
				got := outcome{Calls: len(p.Requests())}
				attempts := res.Attempts
				if err != nil {
					failure, ok := errors.AsType[*inference.Error](err)
					if !ok {
						t.Fatalf("not an *Error: %v", err)
					}
					got.Class, attempts = failure.Class, failure.Attempts
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Error(diff)
				}
				if attempts != tc.want.Calls {
					t.Errorf("Attempts is %d after %d calls", attempts, tc.want.Calls)
				}
			})
		})
	}
}

func TestRetryPauses(t *testing.T) {
	const ms = time.Millisecond
	asked := func(d time.Duration) inferencetest.Step {
		return inferencetest.Fail(&inference.Error{Class: inference.ClassRateLimited, RetryAfter: d})
	}
	plain := inferencetest.Fail(overloaded)
	cases := map[string]struct {
		steps  []inferencetest.Step
		jitter func() float64
		max    int
		want   []time.Duration
	}{
		"doubling to eight seconds": {
			steps: []inferencetest.Step{plain, plain, plain, plain, plain, plain, plain}, jitter: upper, max: 7,
			want: []time.Duration{500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 8000 * ms},
		},
		"full jitter reaches zero": {
			steps: []inferencetest.Step{plain, plain}, jitter: func() float64 {
				return 0
			}, max: 2, want: []time.Duration{0},
		},
		"half": {
			steps: []inferencetest.Step{plain, plain}, jitter: func() float64 {
				return 0.5
			}, max: 2, want: []time.Duration{250 * ms},
		},
		"what the provider asked for, above the limit too": {
			steps: []inferencetest.Step{asked(2 * time.Second), asked(1500 * ms), plain}, jitter: upper, max: 3,
			want: []time.Duration{2 * time.Second, 1500 * ms},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var waits []time.Duration
				var total time.Duration
				retry := inference.Retry{
					Provider: inferencetest.NewScript(tc.steps...), MaxAttempts: tc.max, Jitter: tc.jitter,
					OnRetry: func(attempt int, err *inference.Error, wait time.Duration) {
						waits = append(waits, wait)
						total += wait
						if attempt != len(waits) || err.Attempts != attempt {
							t.Errorf("retry %d is announced as attempt %d (error: %d)", len(waits),
								attempt, err.Attempts)
						}
					},
				}
				if _, err := retry.Generate(t.Context(), inference.Request{}, nil); err == nil {
					t.Error("no error")
				}
				if diff := cmp.Diff(tc.want, waits); diff != "" {
					t.Error(diff)
				}
				if slept := time.Since(start); slept != total {
					t.Errorf("announced %s, waited %s", total, slept)
				}
			})
		})
	}
}

func TestRetryDoesNotBeginAPauseThatWillNotEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration
		calls int
	}{
		"it fits":        {after: time.Second, calls: 2},
		"just too long":  {after: 1500 * time.Millisecond, calls: 1},
		"far too long":   {after: time.Hour, calls: 1},
		"a back-off too": {calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				left := 1500 * time.Millisecond
				if tc.after == 0 {
					left = 400 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), left)
				defer cancel()
				p := inferencetest.NewScript(
					inferencetest.Fail(&inference.Error{Class: inference.ClassRateLimited, RetryAfter: tc.after}),
					inferencetest.Answer(answer),
				)
				_, err := inference.Retry{Provider: p, Jitter: upper}.Generate(ctx, inference.Request{}, nil)
				if got := len(p.Requests()); got != tc.calls {
					t.Errorf("%d calls, want %d", got, tc.calls)
				}
				if tc.calls == 1 {
					if inference.ClassOf(err) != inference.ClassRateLimited {
						t.Errorf("got %v", err)
					}
					if waited := time.Since(start); waited != 0 {
						t.Errorf("returned after %s", waited)
					}
				}
			})
		})
	}
}

func TestRetryEndsWithItsContext(t *testing.T) {
	cause := errors.New("the lease was lost")
	for name, steps := range map[string][]inferencetest.Step{
		"in a call": {inferencetest.Block()},
		"in a pause": {inferencetest.Fail(&inference.Error{Class: inference.ClassRateLimited,
			RetryAfter: inference.MaxRetryAfter})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				start := time.Now()
				p := inferencetest.NewScript(steps...).Then(inferencetest.Answer(answer))
				if _, err := (inference.Retry{Provider: p}).Generate(ctx, inference.Request{},
					nil); err != cause { //nolint:errorlint // the cause itself is promised
					t.Errorf("got %v", err)
				}
				if len(p.Requests()) != 1 || time.Since(start) != time.Second {
					t.Errorf("%d calls in %s", len(p.Requests()), time.Since(start))
				}
			})
		})
	}
	t.Run("before it", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		p := inferencetest.NewScript(inferencetest.Answer(answer))
		if _, err := (inference.Retry{Provider: p}).Generate(ctx, inference.Request{},
			nil); err != cause { //nolint:errorlint // as above
			t.Errorf("got %v", err)
		}
		if len(p.Requests()) != 0 {
			t.Error("a call was made")
		}
	})
}

// There is no timeout on a call: an answer that streams for an hour is not cut off.
func TestRetryLeavesACallItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inferencetest.NewScript(inferencetest.Func(func(ctx context.Context, _ inference.Request,
			onDelta func(inference.Delta)) (inference.Response, error) {
			for range 3600 {
				if !pausing(ctx, time.Second) {
					return inference.Response{}, context.Cause(ctx)
				}
				onDelta(inference.Delta{Kind: inference.DeltaText, Text: "x"})
			}
			return answer, nil
		}))
		res, err := inference.Retry{Provider: p}.Generate(t.Context(), inference.Request{}, func(inference.Delta) {})
		if err != nil || res.Attempts != 1 {
			t.Errorf("%d attempts, %v", res.Attempts, err)
		}
	})
}

func pausing(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// The error of a Provider is not changed.
func TestRetryLeavesTheErrorsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := &inference.Error{Class: inference.ClassBadOutput}
		p := inferencetest.NewScript(inferencetest.Fail(failed), inferencetest.Answer(answer))
		if _, err := (inference.Retry{Provider: p}).Generate(t.Context(), inference.Request{}, nil); err != nil ||
			failed.Attempts != 0 {
			t.Errorf("%v, and the provider's own error has %d attempts", err, failed.Attempts)
		}
	})
}

// TestALastingFailureIsNotRetried checks that a caller gets a failure at once whose pause it should not wait for in
// place.
func TestALastingFailureIsNotRetried(t *testing.T) {
	for name, tc := range map[string]struct {
		err   inference.Error
		calls int
	}{
		"a pause of 2 s": {inference.Error{Class: inference.ClassRateLimited, RetryAfter: 2 * time.Second}, 2},
		"a pause of more": {inference.Error{Class: inference.ClassOverloaded,
			RetryAfter: 2001 * time.Millisecond}, 1},
		"the first idle timeout": {inference.Error{Class: inference.ClassTransport, Idle: true, ByRequest: true}, 1},
		"a reset":                {inference.Error{Class: inference.ClassTransport, ByRequest: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := inferencetest.NewScript(inferencetest.Fail(&tc.err), inferencetest.Answer(answer))
				chain := inference.Chain{Models: []inference.Candidate{{Provider: p, Doubtful: true}}}
				_, err := chain.Generate(t.Context(), inference.Request{}, nil)
				if got := len(p.Requests()); got != tc.calls || (err == nil) != (tc.calls > 1) {
					t.Errorf("%d calls and the error %v, want %d calls", got, err, tc.calls)
				}
			})
		})
	}
}

// TestADoubtfulModelIsAskedAgain checks that what the request may have caused is retried where that is in doubt, and
// only there.
func TestADoubtfulModelIsAskedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		err      inference.Error
		doubtful bool
		calls    int
	}{
		"401":                 {inference.Error{Class: inference.ClassAuth, ByRequest: true}, true, 4},
		"401 without a doubt": {inference.Error{Class: inference.ClassAuth, ByRequest: true}, false, 1},
		"402":                 {inference.Error{Class: inference.ClassQuota}, true, 1},
		"404 that says not to": {inference.Error{Class: inference.ClassNotFound, ByRequest: true,
			NoRetry: true}, true, 1},
		"400, which nobody may retry": {inference.Error{Class: inference.ClassInvalid}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := inferencetest.NewScript().Then(inferencetest.Fail(&tc.err))
				chain := inference.Chain{Models: []inference.Candidate{{Provider: p, Doubtful: tc.doubtful}}}
				_, err := chain.Generate(t.Context(), inference.Request{}, nil)
				if got := len(p.Requests()); got != tc.calls || err == nil {
					t.Errorf("%d calls and the error %v, want %d calls", got, err, tc.calls)
				}
			})
		})
	}
}
