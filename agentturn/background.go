package agentturn

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
	"turnkeeper/agentturn/prompt"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A job is one run of a tool, on its own goroutine. A call that takes longer
// than the turn wants to stand still for goes on in the background: its job is
// then one of the turn's, until it is collected.
type job struct {
	call   turnkeeper.ToolCall // as it was when the job began
	over   context.Context     // ends when the run did
	cancel context.CancelCauseFunc
	done   run // once over has ended

	id     turnkeeper.OutputID // of its output
	since  time.Time
	nonce  string // in the background: of its start
	unread bool   // likewise: nobody wants the result any more
}

// launch begins a run of the call's tool. Several may be launched at once, and
// by several goroutines.
func (t *turn) launch(ctx context.Context, call *turnkeeper.ToolCall) *job {
	ctx, cancel := context.WithCancelCause(ctx)
	over, ended := context.WithCancel(context.Background())
	j := &job{call: *call, over: over, cancel: cancel, since: time.Now()}
	execute, id := t.prepare(ctx, call)
	j.id = id
	go func() {
		defer ended()
		defer cancel(nil)
		j.done = execute()
	}()
	return j
}

func (j *job) isOver() bool { return j.over.Err() != nil }

// inTime waits for a job as long as the turn stands still for one, and says
// whether it is over. A job that must not go on in the background is waited for.
func (t *turn) inTime(j *job) bool {
	<-t.longEnough(j).Done()
	return j.isOver()
}

// longEnough ends when a job is over, or has taken as long as the turn stands still
// for it.
func (t *turn) longEnough(j *job) context.Context {
	if !t.offered.MayGoOn(j.call.Name) {
		return j.over
	}
	ctx, stop := context.WithDeadline(j.over, j.since.Add(t.bounds.AsyncTimeout))
	context.AfterFunc(ctx, stop)
	return ctx
}

// goOn sends a job to the background. Its call is answered with a handle, and
// counts as started from now on, if it did not before.
func (t *turn) goOn(call *turnkeeper.ToolCall, j *job) {
	if call.Starts == 0 {
		start := newStart(call)
		t.next.Starts = append(t.next.Starts, start)
		call.Nonce, call.Starts, call.StartedAt = start.Nonce, start.Attempt, j.since
	}
	j.nonce = call.Nonce
	t.jobs[call.Key] = j
	shown := outputs.Placeholder{ID: j.id, Tool: call.Name}.Background()
	t.answer(call, turnkeeper.CallResult{
		Key: call.Key, Nonce: j.nonce, State: turnkeeper.CallRunning, Shown: shown, Preview: outputs.Preview(shown), OutputID: j.id,
	})
	t.log.Info("tool call goes on in the background", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.String("output_id", string(j.id)), zap.Duration("running", time.Since(j.since)))
}

// rerun starts a call again that was in the background when its worker was lost.
// It stays there: the model was told of it.
func (t *turn) rerun(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if !t.timeFor(spec) {
		t.denyRest(t.pending())
		return nil
	}
	if err := t.dropDraft(ctx, call.OutputID); err != nil {
		return err
	}
	t.events.Mark()
	start := newStart(call)
	t.next.Starts = append(t.next.Starts, start)
	t.next.Results = append(t.next.Results, turnkeeper.CallResult{
		Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: call.Shown, Preview: call.Preview, OutputID: call.OutputID,
	})
	t.tellStarted(call)
	if err := t.commit(ctx); err != nil {
		t.next.Results = slices.DeleteFunc(t.next.Results, func(r turnkeeper.CallResult) bool { return r.Nonce == start.Nonce })
		return err
	}
	j := t.launch(ctx, call)
	j.nonce = call.Nonce
	t.jobs[call.Key] = j
	t.log.Info("tool call of a lost worker runs again in the background", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.Int("start", call.Starts))
	return nil
}

// collect takes the results of the jobs that are over.
func (t *turn) collect() {
	for _, key := range slices.SortedFunc(maps.Keys(t.jobs), turnkeeper.CallKey.Compare) {
		j := t.jobs[key]
		if !j.isOver() {
			continue
		}
		delete(t.jobs, key)
		call := t.call(key)
		result := t.takeLater(call, j)
		t.log.Info("tool call in the background ended", zap.Stringer("call", key), zap.String("tool", call.Name),
			zap.String("state", string(result.State)), zap.Duration("took", j.done.took))
		if result.State == turnkeeper.CallCancelled && !j.unread {
			t.interrupted[key] = result
			continue
		}
		t.answer(call, result)
	}
}

// takeLater is the result of a job in the background. The model knows it by its
// handle: what was sent once stays as it was, whatever the call ended with, and
// the notice tells of its end.
func (t *turn) takeLater(call *turnkeeper.ToolCall, j *job) turnkeeper.CallResult {
	result := t.later(call, j.done.Result)
	result.Nonce, result.State, result.Duration, result.Ran = j.nonce, stateOf(j.done.Outcome, call.Effect), j.done.took, true
	result.Usage = j.done.used
	return result
}

// later takes what a call in the background gave. Where the model can no longer
// retrieve it, it is shown after all.
func (t *turn) later(call *turnkeeper.ToolCall, raw tools.Result) turnkeeper.CallResult {
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
func (t *turn) inline(r *turnkeeper.CallResult) {
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
		r.Shown = outputs.Take(outputs.Raw{Text: o.Text, MediaType: o.MediaType}, outputs.Limits{MaxChars: t.offered.MaxChars(t.call(r.Key).Name)}).Shown
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
func (t *turn) awaitJob(ctx context.Context) error {
	if err := firstOver(ctx, slices.Collect(maps.Values(t.jobs))); err != nil {
		return err
	}
	t.collect()
	return nil
}

// firstOver returns when one of the jobs is over.
func firstOver(ctx context.Context, jobs []*job) error {
	any := make(chan struct{}, 1)
	for _, j := range jobs {
		stop := context.AfterFunc(j.over, func() {
			select {
			case any <- struct{}{}:
			default:
			}
		})
		defer stop()
	}
	select {
	case <-any:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitJobs waits for all jobs in the background, before the turn ends. Those
// that only read are stopped instead, where nobody is to see what they found:
// what has an effect is let finish, so that its outcome is known.
func (t *turn) awaitJobs(ctx context.Context, seen bool) error {
	for _, j := range t.jobs {
		if !seen && j.call.Effect == turnkeeper.EffectNone {
			j.unread = true
			j.cancel(errAnswered)
		}
	}
	for len(t.jobs) > 0 {
		if err := t.awaitJob(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopJobs ends what is left in the background, and collects it.
func (t *turn) stopJobs(cause error) {
	for _, j := range t.jobs {
		j.cancel(cause)
	}
	for _, j := range t.jobs {
		<-j.over.Done()
	}
	t.collect()
}

var (
	errAnswered = errors.New("the turn ended without it")
	errOver     = errors.New("the turn ended")
)
