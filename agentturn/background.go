package agentturn

import (
	"context"
	"errors"
	"slices"
	"time"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"

	"go.uber.org/zap"

	"turnkeeper"
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
func (t *execution) longEnough(r *toolrun.Run) <-chan struct{} {
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
	t.tellStarted(call)
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

// takeLater is the result of a job in the background. The model knows it by its
// handle: what was sent once stays as it was, whatever the call ended with, and
// the notice tells of its end.
func (t *execution) takeLater(call *turnkeeper.ToolCall, j *toolrun.Run) turnkeeper.CallResult {
	result := t.later(call, j.Result.Result)
	result.Nonce, result.State, result.Duration, result.Ran = j.Nonce, stateOf(j.Result.Outcome, call.Effect), j.Result.Took, true
	result.Usage = j.Result.Used
	return result
}

// later takes what a call in the background gave. Where the model can no longer
// retrieve it, it is shown after all.
func (t *execution) later(call *turnkeeper.ToolCall, raw tools.Result) turnkeeper.CallResult {
	if !t.offered.Retrieves() {
		return t.take(call, raw, call.OutputID)
	}
	raw, attached := t.attach(call, raw)
	taken, _ := t.taken(raw, outputs.Limits{MaxChars: t.offered.MaxChars(call.Name)})
	taken.Output.ID, taken.Output.TurnID, taken.Output.Call = call.OutputID, t.record.Turn.ID, call.Key
	t.prompt.Sizes[call.OutputID] = taken.Output.Tokens
	return turnkeeper.CallResult{Key: call.Key, Shown: call.Shown, Preview: taken.Preview, Output: &taken.Output, Attached: attached}
}

// inline shows in place of a handle what it stands for: a late result is kept
// without its output. Binary content stays an output, and is told of.
func (t *execution) inline(r *turnkeeper.CallResult) {
	o := r.Output
	switch {
	case o == nil:
	case o.Drafted:
		r.Shown = r.Preview
	case o.Bytes != nil:
		late := *o
		late.ID = outputs.NewID() // a later run of the call may store its own under the handle
		r.Attached = append(slices.Clip(r.Attached), late)
		r.Shown = attachedLine("the result", late)
	default:
		r.Shown = outputs.Take(outputs.Raw{Text: o.Text, MediaType: o.MediaType}, outputs.Limits{MaxChars: t.offered.MaxChars(t.rounds.call(r.Key).Name)}).Shown
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
