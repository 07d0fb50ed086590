package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// DefaultGrace is how long a tool may take to return after its context ended.
// It is less than a second, so a call is answered within a second of its timeout
// whatever the tool does.
const DefaultGrace = 750 * time.Millisecond

// Outcome is how a run of a tool ended.
type Outcome string

// The outcomes. All but Succeeded have a Result with IsError.
const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"    // an error, or a Result with IsError
	TimedOut  Outcome = "timed_out" // its own timeout
	Cancelled Outcome = "cancelled" // the caller's context ended
	Panicked  Outcome = "panicked"
	InDoubt   Outcome = "in_doubt" // an error that wraps ErrInDoubt
	// NeedsInput is the outcome of an InputRequest.
	NeedsInput Outcome = "needs_input"
)

// A RunResult is how a run of a tool ended.
type RunResult struct {
	Result    Result // for the model, whatever the outcome
	Outcome   Outcome
	Err       error // the tool's error, for branching and for operators
	Abandoned bool  // the tool has not returned: its effect may still happen
}

// ExecuteOptions bound one run of a tool.
type ExecuteOptions struct {
	// Timeout bounds the run. 0: only ctx bounds it. Negative: the call has already
	// timed out, and the tool is not run.
	Timeout time.Duration
	// Limit is the timeout named in the message to the model, if part of it passed before this run.
	// 0: Timeout.
	Limit time.Duration
	// Grace is how long a tool may take to return after its context ended,
	// before it is abandoned. 0: DefaultGrace.
	Grace time.Duration
	// Log gets the stack of a panic. nil: nothing is logged.
	Log *zap.Logger
	// Collect reads a tool's result within the timeout, in the tool's goroutine; see
	// Collect and ReadBody. It must close the Body. nil: Collect.
	Collect func(context.Context, Result) (Result, error)
	// Abandoned, if not nil, is called when the tool is abandoned, before Execute
	// returns and before Late.
	Abandoned func()
	// Late, if not nil, is called with the res of an abandoned tool, at most once,
	// in the tool's goroutine.
	Late func(RunResult)
}

// Execute runs a tool once. It returns when the tool ends, or opts.Grace after the
// timeout or the end of ctx: a tool that ignores its context is abandoned with its
// goroutine. An abandoned transactional tool may still use its transaction: roll it
// back.
//
// A result that the tool returns during the grace counts; an error then means timed
// out or cancelled. Execute recovers panics of the tool.
func Execute(ctx context.Context, tool Tool, call Call, opts ExecuteOptions) RunResult {
	e := execution{tool: tool, call: call, name: tool.Spec().Name, opts: opts,
		expired: errors.New("the tool's time is up"), noted: make(chan struct{})}
	if opts.Log == nil {
		e.opts.Log = zap.NewNop()
	}
	if opts.Collect == nil {
		e.opts.Collect = Collect
	}
	if opts.Grace <= 0 {
		e.opts.Grace = DefaultGrace
	}
	return e.execute(ctx)
}

type execution struct {
	tool Tool
	call Call
	name string
	opts ExecuteOptions

	expired error         // cause of the tool's context when its own timeout ended it
	settled atomic.Bool   // decided: the res is used, or the tool is abandoned
	noted   chan struct{} // closed after Abandoned returned
}

func (e *execution) execute(ctx context.Context) RunResult {
	ctx, stop := e.bounded(ctx)
	defer stop()
	if ctx.Err() != nil {
		return e.stopped(ctx)
	}
	done := make(chan RunResult, 1)
	go e.run(ctx, done)
	select {
	case res := <-done:
		return res
	case <-ctx.Done():
	}
	return e.await(ctx, done)
}

func (e *execution) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.opts.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, e.opts.Timeout, e.expired)
}

// await waits up to opts.Grace for a tool whose context has ended, then abandons it.
func (e *execution) await(ctx context.Context, done <-chan RunResult) RunResult {
	grace := time.NewTimer(e.opts.Grace)
	defer grace.Stop()
	select {
	case res := <-done:
		return res
	case <-grace.C:
	}
	if !e.settled.CompareAndSwap(false, true) {
		return <-done
	}
	if e.opts.Abandoned != nil {
		e.opts.Abandoned()
	}
	close(e.noted)
	res := e.stopped(ctx)
	res.Abandoned = true
	return res
}

// run runs the tool in its own goroutine.
func (e *execution) run(ctx context.Context, done chan<- RunResult) {
	// The res if the tool calls runtime.Goexit.
	res := e.failed(Panicked, fmt.Sprintf("'%s' panicked: it ended its goroutine", e.name))
	defer func() {
		if cause := recover(); cause != nil {
			res = e.panicked(cause)
		}
		if e.settled.CompareAndSwap(false, true) {
			done <- res
		} else if e.opts.Late != nil {
			<-e.noted
			e.opts.Late(res)
		}
	}()
	result, err := run(ctx, e.tool, e.call, e.opts.Collect)
	res = e.ended(ctx, result, err)
}

func (e *execution) ended(ctx context.Context, result Result, err error) RunResult {
	var res RunResult
	switch {
	case err != nil && ctx.Err() != nil:
		res = e.stopped(ctx)
	case errors.Is(err, ErrInDoubt):
		res = e.failed(InDoubt, err.Error())
	case isInputRequest(err):
		res = e.failed(NeedsInput, err.Error())
	case err != nil:
		res = e.failed(Failed, err.Error())
	case result.IsError:
		res = RunResult{Result: result, Outcome: Failed}
	default:
		res = RunResult{Result: result, Outcome: Succeeded}
	}
	res.Err = err
	return res
}

func isInputRequest(err error) bool {
	_, ok := errors.AsType[*InputRequest](err)
	return ok
}

// stopped returns the res of a run whose context has ended.
func (e *execution) stopped(ctx context.Context) RunResult {
	cause := context.Cause(ctx)
	if errors.Is(cause, e.expired) {
		return e.failed(TimedOut, fmt.Sprintf("'%s' timed out after %s s", e.name,
			seconds(max(cmp.Or(e.opts.Limit, e.opts.Timeout), 0))))
	}
	return e.failed(Cancelled, fmt.Sprintf("'%s' was cancelled: %s", e.name, cause))
}

func (e *execution) panicked(cause any) RunResult {
	message := panicMessage(cause)
	e.opts.Log.Error("tool panicked", zap.String("tool", e.name), zap.Int64("turn_id", int64(e.call.TurnID)),
		zap.Stringer("call", e.call.Key), zap.String("panic", message), zap.ByteString("stack", debug.Stack()))
	return e.failed(Panicked, fmt.Sprintf("'%s' panicked: %s", e.name, message))
}

// panicMessage formats a panic value, even one that panics when it is printed.
func panicMessage(cause any) (message string) {
	defer func() {
		if recover() != nil {
			message = "its message cannot be printed"
		}
	}()
	if err, ok := cause.(error); ok {
		return clip(err.Error(), maxPanicChars)
	}
	return clip(fmt.Sprint(cause), maxPanicChars)
}

const maxPanicChars = 500

func (e *execution) failed(outcome Outcome, text string) RunResult {
	return RunResult{Result: boundText(Result{Text: "tool error: " + text, IsError: true}), Outcome: outcome}
}

// seconds formats a duration in seconds, with up to three decimals: "60", "0.25".
func seconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Round(time.Millisecond).Milliseconds())/1000, 'f', -1, 64)
}

// clip cuts the text to its first n characters and an ellipsis.
func clip(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i] + "…"
		}
		n--
	}
	return text
}
