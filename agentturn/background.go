package agentturn

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// overOrSlow returns a channel that is closed when a run of a call is over or, if it may continue in
// the background, has run for async_timeout.
func (w *tooling) overOrSlow(call *calls.Call, r *toolrun.Run) <-chan struct{} {
	if !w.task.offered.MayGoOn(call.Spec) {
		return r.Over()
	}
	return r.OverOrAfter(w.task.bounds.AsyncTimeout)
}

// toBackground moves a run to the background. It answers the call with a handle, and
// records its start if it has none.
func (x *executor) toBackground(call *calls.Call, run *toolrun.Run) {
	if call.Starts == 0 {
		start := newStart(call)
		x.pending.Starts = append(x.pending.Starts, start)
		call.Nonce, call.Starts, call.StartedAt = start.Nonce, start.Attempt, run.Since
		start.SetArguments(call.ToolCall)
	}
	run.Nonce = call.Nonce
	call.Run = run
	shown := outputs.Placeholder{ID: run.ID, Tool: call.Name}.Background()
	x.answer(call, turnlog.CallResult{
		Key: call.Key, Nonce: run.Nonce, State: turnkeeper.CallRunning, Shown: shown, Preview: outputs.Preview(shown),
		OutputID: run.ID,
	})
	x.log.Info("tool call continues in the background", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.String("output_id", string(run.ID)), zap.Duration("running", time.Since(run.Since)))
}

// rerun starts a background call of a lost worker again. It stays in the background,
// because the model has its handle.
func (x *executor) rerun(ctx context.Context, call *calls.Call) error {
	if !x.clock.timeFor(call.Spec) {
		x.denyRest(x.calls.Runnable())
		return nil
	}
	if err := x.tooling.dropDraft(ctx, call.OutputID); err != nil {
		return err
	}
	x.events.Mark()
	start := newStart(call)
	x.pending.Starts = append(x.pending.Starts, start)
	x.pending.Results = append(x.pending.Results, turnlog.CallResult{
		Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: call.Shown, Preview: call.Preview,
		OutputID: call.OutputID,
	})
	x.startEvent(call)
	if err := x.commit(ctx); err != nil {
		x.pending.dropResult(start.Nonce)
		return err
	}
	run := x.tooling.launch(ctx, call)
	run.Nonce = call.Nonce
	call.Run = run
	x.log.Info("tool call of a lost worker runs again in the background", zap.Stringer("call", call.Key),
		zap.String("tool", call.Name),
		zap.Int("start", call.Starts))
	return nil
}

// collect records the results of the background runs that are over.
func (x *executor) collect() {
	for _, call := range x.calls.Those(func(c *calls.Call) bool { return c.Run != nil && c.Run.IsOver() }) {
		run := call.Run
		call.Run = nil
		x.pending.held = append(x.pending.held, run.Result.Memory)
		result := x.tooling.runResult(call, run)
		x.tooling.keep(call, run.Result, result.Labels)
		x.log.Info("tool call in the background ended", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
			zap.String("state", string(result.State)), zap.Duration("took", run.Result.Duration))
		unread := run.Unread || x.finishing() && run.Call.Effect == turnkeeper.EffectNone
		if result.State == turnkeeper.CallCancelled && !unread {
			call.Cut = &result
			continue
		}
		x.answer(call, result)
	}
}

func stateOf(o tools.Outcome, e turnkeeper.Effect) turnkeeper.CallState {
	switch {
	case o == tools.InDoubt && !e.Repeatable():
		return turnkeeper.CallUnknown
	case o == tools.Succeeded:
		return turnkeeper.CallSucceeded
	case o == tools.Cancelled:
		return turnkeeper.CallCancelled
	default:
		return turnkeeper.CallFailed
	}
}

// awaitRun waits until a background run is over, and collects. It first writes an answer that waits.
func (x *executor) awaitRun(ctx context.Context) error {
	if x.pending.Round != nil {
		if err := x.commit(ctx); err != nil {
			return err
		}
	}
	if err := x.calls.Runs().Await(ctx); err != nil {
		return err
	}
	x.collect()
	return nil
}

// awaitRuns waits for all background runs before the turn ends. Unless seen is set, nobody
// will read the results of runs of effect none, and awaitRuns cancels them. Effects
// finish in any case, so that their outcome is known.
func (x *executor) awaitRuns(ctx context.Context, seen bool) error {
	for _, run := range x.calls.Runs() {
		if !seen && run.Call.Effect == turnkeeper.EffectNone {
			run.Unread = true
			run.Cancel(errAnswered)
		}
	}
	for len(x.calls.Runs()) > 0 {
		if err := x.awaitRun(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopRuns cancels all background runs, and collects.
func (x *executor) stopRuns(cause error) {
	x.calls.Runs().Stop(cause)
	x.collect()
}

var (
	errAnswered = errors.New("the turn ended without it")
	errOver     = errors.New("the turn ended")
)
