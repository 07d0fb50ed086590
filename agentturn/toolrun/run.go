// Package toolrun runs tool calls, each in its own goroutine, where it may continue in the
// background. It buffers their progress, stores large results while they arrive, and gives
// tools access to earlier results. It makes no decisions about a turn.
package toolrun

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/membudget"
	"turnkeeper/tools"
)

// A Run is one run of a tool. If the call takes longer than async_timeout, the run
// continues in the background and is added to the turn's Set.
type Run struct {
	Call   turnkeeper.ToolCall // as it was when the run began
	ID     turnkeeper.OutputID // of its output, if that is stored
	Since  time.Time
	Result Result // valid once the run is over

	Nonce  string // of its start; set if in the background
	Unread bool   // nobody will read the result; set if in the background

	over   context.Context // ends with the run
	cancel context.CancelCauseFunc
}

// A Result is the result of a run.
type Result struct {
	tools.RunResult
	Began    time.Time
	Duration time.Duration
	Used     turnkeeper.Usage // by the model calls of the tool
	// KeptSince is when the run began whose result was kept, and is used for this one; zero: the tool ran.
	KeptSince time.Time
	// Memory is held for the content until it is recorded.
	Memory *membudget.Lease
}

// Launch starts a run of a call. It is safe for concurrent use.
func Launch(ctx context.Context, call turnkeeper.ToolCall, id turnkeeper.OutputID,
	execute func(context.Context) Result) *Run {
	ctx, cancel := context.WithCancelCause(ctx)
	over, ended := context.WithCancel(context.Background())
	r := &Run{Call: call, ID: id, Since: time.Now(), over: over, cancel: cancel}
	go func() {
		defer ended()
		defer cancel(nil)
		r.Result = execute(ctx)
	}()
	return r
}

// Ended returns a run of a call that is over without having run anything.
func Ended(call turnkeeper.ToolCall, id turnkeeper.OutputID, result Result) *Run {
	over, ended := context.WithCancel(context.Background())
	ended()
	return &Run{Call: call, ID: id, Since: time.Now(), Result: result, over: over, cancel: func(error) {}}
}

// IsOver reports whether the run has ended.
func (r *Run) IsOver() bool { return r.over.Err() != nil }

// Over returns a channel that is closed when the run has ended.
func (r *Run) Over() <-chan struct{} { return r.over.Done() }

// OverOrAfter returns a channel that is closed when the run has ended, or limit after its
// begin.
func (r *Run) OverOrAfter(limit time.Duration) <-chan struct{} {
	waiting, stop := context.WithDeadline(r.over, r.Since.Add(limit))
	context.AfterFunc(waiting, stop)
	return waiting.Done()
}

// Cancel cancels the run's context.
func (r *Run) Cancel(cause error) { r.cancel(cause) }

// Within cancels the run's context when ctx ends too.
func (r *Run) Within(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })
	context.AfterFunc(r.over, func() { stop() })
}

// A Set holds the background runs of a turn, in the order of their calls.
type Set []*Run

// Await waits until a run is over. If ctx ends first, it returns its cause.
func (s Set) Await(ctx context.Context) error { return awaitFirst(ctx, s) }

// Stop cancels all runs, and waits until they are over.
func (s Set) Stop(cause error) {
	for _, r := range s {
		r.Cancel(cause)
	}
	for _, r := range s {
		<-r.Over()
	}
}

// awaitFirst returns when one of the runs is over.
func awaitFirst(ctx context.Context, runs []*Run) error {
	first := make(chan struct{}, 1)
	for _, r := range runs {
		stop := context.AfterFunc(r.over, func() {
			select {
			case first <- struct{}{}:
			default:
			}
		})
		defer stop()
	}
	select {
	case <-first:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
