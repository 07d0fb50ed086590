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
func (t *execution) launch(ctx context.Context, call *turnkeeper.ToolCall) *toolrun.Run {
	execute, id := t.prepare(call)
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
func (t *execution) goOn(call *turnkeeper.ToolCall, j *toolrun.Run) {
	if call.Starts == 0 {
		start := newStart(call)
		t.pending.Starts = append(t.pending.Starts, start)
		call.Nonce, call.Starts, call.StartedAt = start.Nonce, start.Attempt, j.Since
	}
	j.Nonce = call.Nonce
	t.background[call.Key] = j
	shown := outputs.Placeholder{ID: j.ID, Tool: call.Name}.Background()
	t.answer(call, turnkeeper.CallResult{
		Key: call.Key, Nonce: j.Nonce, State: turnkeeper.CallRunning, Shown: shown, Preview: outputs.Preview(shown), OutputID: j.ID,
	})
	t.log.Info("tool call goes on in the background", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.String("output_id", string(j.ID)), zap.Duration("running", time.Since(j.Since)))
}

// rerun starts a call again that was in the background when its worker was lost.
// It stays there: the model was told of it.
func (t *execution) rerun(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if !t.timeFor(spec) {
		t.denyRest(t.runnable())
		return nil
	}
	if err := t.dropDraft(ctx, call.OutputID); err != nil {
		return err
	}
	t.events.Mark()
	start := newStart(call)
	t.pending.Starts = append(t.pending.Starts, start)
	t.pending.Results = append(t.pending.Results, turnkeeper.CallResult{
		Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: call.Shown, Preview: call.Preview, OutputID: call.OutputID,
	})
	t.startEvent(call)
	if err := t.commit(ctx); err != nil {
		t.pending.dropResult(start.Nonce)
		return err
	}
	j := t.launch(ctx, call)
	j.Nonce = call.Nonce
	t.background[call.Key] = j
	t.log.Info("tool call of a lost worker runs again in the background", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.Int("start", call.Starts))
	return nil
}

// collect takes the results of the jobs that are over.
func (t *execution) collect() {
	for _, j := range t.background.Collect() {
		key := j.Call.Key
		call := t.rounds.call(key)
		result := t.takeLater(call, j)
		t.log.Info("tool call in the background ended", zap.Stringer("call", key), zap.String("tool", call.Name),
			zap.String("state", string(result.State)), zap.Duration("took", j.Result.Took))
		if result.State == turnkeeper.CallCancelled && !j.Unread {
			t.interrupted[key] = result
			continue
		}
		t.answer(call, result)
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
func (t *execution) awaitJob(ctx context.Context) error {
	if err := t.background.Await(ctx); err != nil {
		return err
	}
	t.collect()
	return nil
}

// awaitJobs waits for all jobs in the background, before the turn ends. Those
// that only read are stopped instead, where nobody is to see what they found:
// what has an effect is let finish, so that its outcome is known.
func (t *execution) awaitJobs(ctx context.Context, seen bool) error {
	for _, j := range t.background {
		if !seen && j.Call.Effect == turnkeeper.EffectNone {
			j.Unread = true
			j.Cancel(errAnswered)
		}
	}
	for len(t.background) > 0 {
		if err := t.awaitJob(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopJobs ends what is left in the background, and collects it.
func (t *execution) stopJobs(cause error) {
	t.background.Stop(cause)
	t.collect()
}

var (
	errAnswered = errors.New("the turn ended without it")
	errOver     = errors.New("the turn ended")
)
