package agentturn

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// launch begins a run of the call's tool. Several may be launched at once, and by several
// goroutines.
func (e *execution) launch(ctx context.Context, call *turnkeeper.ToolCall) *toolrun.Run {
	execute, id := e.prepare(call)
	return toolrun.Launch(ctx, *call, id, execute)
}

// longEnough returns a channel that is closed when a run is over, or has taken as long as
// the turn stands still for it. One that must not go on in the background is waited for.
func (t *task) longEnough(r *toolrun.Run) <-chan struct{} {
	if !t.offered.MayGoOn(r.Call.Name) {
		return r.Over()
	}
	return r.OverOrAfter(t.bounds.AsyncTimeout)
}

// goOn sends a job to the background. Its call is answered with a handle, and
// counts as started from now on, if it did not before.
func (e *execution) goOn(call *turnkeeper.ToolCall, j *toolrun.Run) {
	if call.Starts == 0 {
		start := newStart(call)
		e.pending.Starts = append(e.pending.Starts, start)
		call.Nonce, call.Starts, call.StartedAt = start.Nonce, start.Attempt, j.Since
	}
	j.Nonce = call.Nonce
	e.background[call.Key] = j
	shown := outputs.Placeholder{ID: j.ID, Tool: call.Name}.Background()
	e.answer(call, turnkeeper.CallResult{
		Key: call.Key, Nonce: j.Nonce, State: turnkeeper.CallRunning, Shown: shown, Preview: outputs.Preview(shown), OutputID: j.ID,
	})
	e.log.Info("tool call goes on in the background", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.String("output_id", string(j.ID)), zap.Duration("running", time.Since(j.Since)))
}

// rerun starts a call again that was in the background when its worker was lost.
// It stays there: the model was told of it.
func (e *execution) rerun(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if !e.timeFor(spec) {
		e.denyRest(e.runnable())
		return nil
	}
	if err := e.dropDraft(ctx, call.OutputID); err != nil {
		return err
	}
	e.events.Mark()
	start := newStart(call)
	e.pending.Starts = append(e.pending.Starts, start)
	e.pending.Results = append(e.pending.Results, turnkeeper.CallResult{
		Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: call.Shown, Preview: call.Preview, OutputID: call.OutputID,
	})
	e.startEvent(call)
	if err := e.commit(ctx); err != nil {
		e.pending.dropResult(start.Nonce)
		return err
	}
	j := e.launch(ctx, call)
	j.Nonce = call.Nonce
	e.background[call.Key] = j
	e.log.Info("tool call of a lost worker runs again in the background", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.Int("start", call.Starts))
	return nil
}

// collect takes the results of the jobs that are over.
func (e *execution) collect() {
	for _, j := range e.background.Collect() {
		key := j.Call.Key
		call := e.rounds.call(key)
		result := e.takeLater(call, j)
		e.log.Info("tool call in the background ended", zap.Stringer("call", key), zap.String("tool", call.Name),
			zap.String("state", string(result.State)), zap.Duration("took", j.Result.Took))
		if result.State == turnkeeper.CallCancelled && !j.Unread {
			e.interrupted[key] = result
			continue
		}
		e.answer(call, result)
	}
}

// endLater makes a result one of a call in the background, if it is.
func endLater(call turnkeeper.ToolCall, result turnkeeper.CallResult) turnkeeper.CallResult {
	if prompt.WentOn(call) {
		result.Preview, result.Shown = outputs.Preview(result.Shown), call.Shown
	}
	return result
}

func stateOf(o tools.Outcome, e turnkeeper.Effect) turnkeeper.CallState {
	switch {
	case o == tools.InDoubt && !e.Repeatable():
		return turnkeeper.CallUnknown
	}
	switch o {
	case tools.Succeeded:
		return turnkeeper.CallSucceeded
	case tools.Cancelled:
		return turnkeeper.CallCancelled
	default:
		return turnkeeper.CallFailed
	}
}

// awaitJob waits until one of the jobs in the background is over, and collects.
func (e *execution) awaitJob(ctx context.Context) error {
	if err := e.background.Await(ctx); err != nil {
		return err
	}
	e.collect()
	return nil
}

// awaitJobs waits for all jobs in the background, before the turn ends. Those
// that only read are stopped instead, where nobody is to see what they found:
// what has an effect is let finish, so that its outcome is known.
func (e *execution) awaitJobs(ctx context.Context, seen bool) error {
	for _, j := range e.background {
		if !seen && j.Call.Effect == turnkeeper.EffectNone {
			j.Unread = true
			j.Cancel(errAnswered)
		}
	}
	for len(e.background) > 0 {
		if err := e.awaitJob(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopJobs ends what is left in the background, and collects it.
func (e *execution) stopJobs(cause error) {
	e.background.Stop(cause)
	e.collect()
}

var (
	errAnswered = errors.New("the turn ended without it")
	errOver     = errors.New("the turn ended")
)
