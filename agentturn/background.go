package agentturn

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// overOrSlow returns a channel that is closed when a run is over or, if it may continue in
// the background, has run for async_timeout.
func (t *task) overOrSlow(r *toolrun.Run) <-chan struct{} {
	if !t.offered.MayGoOn(r.Call.Name) {
		return r.Over()
	}
	return r.OverOrAfter(t.bounds.AsyncTimeout)
}

// toBackground moves a run to the background. It answers the call with a handle, and
// records its start if it has none.
func (e *execution) toBackground(call *turnkeeper.ToolCall, run *toolrun.Run) {
	if call.Starts == 0 {
		start := approvals{e.ledger}.newStart(call)
		e.pending.Starts = append(e.pending.Starts, start)
		call.Nonce, call.Starts, call.StartedAt = start.Nonce, start.Attempt, run.Since
		start.SetArguments(call)
	}
	run.Nonce = call.Nonce
	e.background[call.Key] = run
	shown := outputs.Placeholder{ID: run.ID, Tool: call.Name}.Background()
	e.answer(call, turnlog.CallResult{
		Key: call.Key, Nonce: run.Nonce, State: turnkeeper.CallRunning, Shown: shown, Preview: outputs.Preview(shown), OutputID: run.ID,
	})
	e.log.Info("tool call continues in the background", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.String("output_id", string(run.ID)), zap.Duration("running", time.Since(run.Since)))
}

// rerun starts a background call of a lost worker again. It stays in the background,
// because the model has its handle.
func (e *execution) rerun(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if !e.timeFor(spec) {
		e.denyRest(e.runnable())
		return nil
	}
	if err := e.dropDraft(ctx, call.OutputID); err != nil {
		return err
	}
	e.events.Mark()
	start := approvals{e.ledger}.newStart(call)
	e.pending.Starts = append(e.pending.Starts, start)
	e.pending.Results = append(e.pending.Results, turnlog.CallResult{
		Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: call.Shown, Preview: call.Preview, OutputID: call.OutputID,
	})
	e.startEvent(call)
	if err := e.commit(ctx); err != nil {
		e.pending.dropResult(start.Nonce)
		return err
	}
	run := e.launch(ctx, call)
	run.Nonce = call.Nonce
	e.background[call.Key] = run
	e.log.Info("tool call of a lost worker runs again in the background", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.Int("start", call.Starts))
	return nil
}

// collect records the results of the background runs that are over.
func (e *execution) collect() {
	for _, run := range e.background.Collect() {
		key := run.Call.Key
		call := e.rounds.call(key)
		result := e.runResult(call, run)
		e.log.Info("tool call in the background ended", zap.Stringer("call", key), zap.String("tool", call.Name),
			zap.String("state", string(result.State)), zap.Duration("took", run.Result.Took))
		unread := run.Unread || e.finishing() && run.Call.Effect == turnkeeper.EffectNone
		if result.State == turnkeeper.CallCancelled && !unread {
			e.interrupted[key] = result
			continue
		}
		e.answer(call, result)
	}
}

// keepHandle returns the result, changed so that a background call keeps its handle as
// Shown. The text becomes the preview.
func keepHandle(call turnkeeper.ToolCall, result turnlog.CallResult) turnlog.CallResult {
	if prompt.WentOn(call) {
		result.Preview, result.Shown = outputs.Preview(result.Shown), call.Shown
	}
	return result
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

// awaitRun waits until a background run is over, and collects.
func (e *execution) awaitRun(ctx context.Context) error {
	if err := e.background.Await(ctx); err != nil {
		return err
	}
	e.collect()
	return nil
}

// awaitRuns waits for all background runs before the turn ends. Unless seen is set, nobody
// will read the results of runs of effect none, and awaitRuns cancels them. Effects
// finish in any case, so that their outcome is known.
func (e *execution) awaitRuns(ctx context.Context, seen bool) error {
	for _, run := range e.background {
		if !seen && run.Call.Effect == turnkeeper.EffectNone {
			run.Unread = true
			run.Cancel(errAnswered)
		}
	}
	for len(e.background) > 0 {
		if err := e.awaitRun(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopRuns cancels all background runs, and collects.
func (e *execution) stopRuns(cause error) {
	e.background.Stop(cause)
	e.collect()
}

var (
	errAnswered = errors.New("the turn ended without it")
	errOver     = errors.New("the turn ended")
)
