// Package toolrun runs tool calls: each on its own goroutine, where it may go on in the
// background; what they tell of their progress; how a large result is written while it
// comes; and what a tool may read of earlier results. It decides nothing about a turn.
package toolrun

import (
	"context"
	"maps"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
)

// A Run is one run of a tool. A call that takes longer than the turn wants to stand still
// for goes on in the background: its run is then in the turn's Set.
type Run struct {
	Call   turnkeeper.ToolCall // as it was when the run began
	ID     turnkeeper.OutputID // of its output, should it be stored
	Since  time.Time
	Result Result // once the run is over

	Nonce  string // in the background: of its start
	Unread bool   // likewise: nobody wants the result any more

	over   context.Context // ends when the run did
	cancel context.CancelCauseFunc
}

// A Result is what a run of a tool ended with.
type Result struct {
	tools.Ending
	Took time.Duration
	Used turnkeeper.Usage // of model calls made for it
}

// Launch begins a run of a call. Several may be launched at once, and by several
// goroutines.
func Launch(ctx context.Context, call turnkeeper.ToolCall, id turnkeeper.OutputID, execute func(context.Context) Result) *Run {
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

// IsOver reports whether the run has ended.
func (r *Run) IsOver() bool { return r.over.Err() != nil }

// Over returns a channel that is closed when the run has ended.
func (r *Run) Over() <-chan struct{} { return r.over.Done() }

// OverOrAfter returns a channel that is closed when the run has ended or has taken so
// long.
func (r *Run) OverOrAfter(limit time.Duration) <-chan struct{} {
	waiting, stop := context.WithDeadline(r.over, r.Since.Add(limit))
	context.AfterFunc(waiting, stop)
	return waiting.Done()
}

// Cancel ends the run's context.
func (r *Run) Cancel(cause error) { r.cancel(cause) }

// A Set holds the runs of a turn that go on in the background.
type Set map[turnkeeper.CallKey]*Run

// Sorted returns the runs in the order of their calls.
func (s Set) Sorted() []*Run {
	var runs []*Run
	for _, key := range slices.SortedFunc(maps.Keys(s), turnkeeper.CallKey.Compare) {
		runs = append(runs, s[key])
	}
	return runs
}

// Collect removes the runs that are over, and returns them in the order of their calls.
func (s Set) Collect() (ended []*Run) {
	for _, r := range s.Sorted() {
		if r.IsOver() {
			delete(s, r.Call.Key)
			ended = append(ended, r)
		}
	}
	return ended
}

// Age returns how long a call has been in the background, or has been detached.
func (s Set) Age(call turnkeeper.ToolCall) time.Duration {
	if r := s[call.Key]; r != nil {
		return time.Since(r.Since)
	}
	if call.Elsewhere && !call.StartedAt.IsZero() {
		return max(time.Since(call.StartedAt), 0)
	}
	return 0
}

// Await waits until one of the runs is over.
func (s Set) Await(ctx context.Context) error { return firstOver(ctx, slices.Collect(maps.Values(s))) }

// Stop ends all runs, and waits until they are over.
func (s Set) Stop(cause error) {
	for _, r := range s {
		r.Cancel(cause)
	}
	for _, r := range s {
		<-r.Over()
	}
}

// firstOver returns when one of the runs is over.
func firstOver(ctx context.Context, runs []*Run) error {
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
