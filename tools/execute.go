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
// It is less than a second, so that a call is answered within a second of its
// timeout, whatever the tool does.
const DefaultGrace = 750 * time.Millisecond

// Outcome says how a run of a tool ended.
type Outcome string

// The outcomes. All but Succeeded have a Result with IsError.
const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"    // an error, or a Result with IsError
	TimedOut  Outcome = "timed_out" // its own timeout
	Cancelled Outcome = "cancelled" // the caller's context ended
	Panicked  Outcome = "panicked"
	InDoubt   Outcome = "in_doubt" // an error that wraps ErrInDoubt
)

// An Ending is what a run of a tool ended with.
type Ending struct {
	Result    Result // for the model, whatever the outcome
	Outcome   Outcome
	Err       error // what the tool returned, for branching and for operators; nil: nothing
	Abandoned bool  // the tool had not returned: what it does may still happen
}

// ExecuteOptions bound one run of a tool.
type ExecuteOptions struct {
	// Timeout is the most the run may take. 0: only ctx bounds it. Less than
	// 0: the time is up already, and the tool is not run.
	Timeout time.Duration
	// Limit is the timeout that the message to the model names, where part of it had passed before
	// this run. 0: Timeout.
	Limit time.Duration
	// Grace is how long a tool may take to return after its context ended,
	// before it is abandoned. 0: DefaultGrace.
	Grace time.Duration
	// Log gets the stack of a panic. nil: nothing is logged.
	Log *zap.Logger
	// Collect takes what a tool gave back, in the tool's time and its goroutine;
	// see Collect and ReadBody. It answers for the Body. nil: Collect.
	Collect func(context.Context, Result) (Result, error)
	// Abandoned is called before Execute returns, and before Late, when the tool
	// is left behind. nil: nobody is told.
	Abandoned func()
	// Late gets, from the tool's own goroutine, how an abandoned tool ended in
	// the end; at most once, after Execute has returned. nil: dropped.
	Late func(Ending)
}

// Execute runs a tool once, and returns when it ended or soon after its time
// was up: a tool that ignores its context is left behind with its goroutine.
// A transactional tool that is left behind may still touch its transaction;
// roll that back.
//
// A tool that returns a result after its time was up has succeeded, or failed,
// all the same; one that then returns an error has timed out, or was
// cancelled. Execute never panics for the tool.
func Execute(ctx context.Context, tool Tool, call Call, opts ExecuteOptions) Ending {
	e := execution{tool: tool, call: call, name: tool.Spec().Name, opts: opts,
		expired: errors.New("the tool's time is up"), told: make(chan struct{})}
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
	settled atomic.Bool   // somebody has decided: the ending is taken, or the tool is abandoned
	told    chan struct{} // closed when Abandoned was called
}

func (e *execution) execute(ctx context.Context) Ending {
	ctx, stop := e.bounded(ctx)
	defer stop()
	if ctx.Err() != nil {
		return e.stopped(ctx)
	}
	done := make(chan Ending, 1)
	go e.run(ctx, done)
	select {
	case ending := <-done:
		return ending
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

// await gives a tool whose context has ended its grace.
func (e *execution) await(ctx context.Context, done <-chan Ending) Ending {
	grace := time.NewTimer(e.opts.Grace)
	defer grace.Stop()
	select {
	case ending := <-done:
		return ending
	case <-grace.C:
	}
	if !e.settled.CompareAndSwap(false, true) {
		return <-done
	}
	if e.opts.Abandoned != nil {
		e.opts.Abandoned()
	}
	close(e.told)
	ending := e.stopped(ctx)
	ending.Abandoned = true
	return ending
}

// run is the tool's goroutine.
func (e *execution) run(ctx context.Context, done chan<- Ending) {
	// What is left of it when the tool ends its goroutine by runtime.Goexit.
	ending := e.failed(Panicked, fmt.Sprintf("'%s' panicked: it ended its goroutine", e.name))
	defer func() {
		if cause := recover(); cause != nil {
			ending = e.panicked(cause)
		}
		if e.settled.CompareAndSwap(false, true) {
			done <- ending
		} else if e.opts.Late != nil {
			<-e.told
			e.opts.Late(ending)
		}
	}()
	result, err := run(ctx, e.tool, e.call, e.opts.Collect)
	ending = e.ended(ctx, result, err)
}

func (e *execution) ended(ctx context.Context, result Result, err error) Ending {
	var ending Ending
	switch {
	case err != nil && ctx.Err() != nil:
		ending = e.stopped(ctx)
	case errors.Is(err, ErrInDoubt):
		ending = e.failed(InDoubt, err.Error())
	case err != nil:
		ending = e.failed(Failed, err.Error())
	case result.IsError:
		ending = Ending{Result: result, Outcome: Failed}
	default:
		ending = Ending{Result: result, Outcome: Succeeded}
	}
	ending.Err = err
	return ending
}

// stopped is the ending of a run whose context has ended.
func (e *execution) stopped(ctx context.Context) Ending {
	cause := context.Cause(ctx)
	if errors.Is(cause, e.expired) {
		return e.failed(TimedOut, fmt.Sprintf("'%s' timed out after %s s", e.name, seconds(max(cmp.Or(e.opts.Limit, e.opts.Timeout), 0))))
	}
	return e.failed(Cancelled, fmt.Sprintf("'%s' was cancelled: %s", e.name, cause))
}

func (e *execution) panicked(cause any) Ending {
	message := panicMessage(cause)
	e.opts.Log.Error("tool panicked", zap.String("tool", e.name), zap.Int64("turn_id", int64(e.call.TurnID)),
		zap.Stringer("call", e.call.Key), zap.String("panic", message), zap.ByteString("stack", debug.Stack()))
	return e.failed(Panicked, fmt.Sprintf("'%s' panicked: %s", e.name, message))
}

// panicMessage survives values that panic when they are printed.
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

func (e *execution) failed(outcome Outcome, text string) Ending {
	return Ending{Result: boundText(Result{Text: "tool error: " + text, IsError: true}), Outcome: outcome}
}

// seconds prints whole seconds as "60", others with up to three digits more.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Round(time.Millisecond).Milliseconds())/1000, 'f', -1, 64)
}
