package agentturn

import (
	"context"
	"crypto/rand"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/tools"
)

// runEffect runs one call of effect keyed or once: it writes the start, checks the time
// left and runs the effect. The result goes into the next write.
func (t *execution) runEffect(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if err := t.start(ctx, call); err != nil {
		return err
	}
	if !t.timeFor(spec) {
		t.answer(call, textResult(call, turnkeeper.CallFailed, prompt.ShownNoTime)) // it certainly did not run
		if open := t.runnable(); len(open) > 0 {
			t.denyRest(open)
		}
		return nil
	}
	t.at(ctx, PointChecked)
	if ctx.Err() != nil {
		t.neverBegan(call)
		return context.Cause(ctx)
	}
	j := t.launch(ctx, call)
	err := t.until(ctx, t.longEnough(j), j.Cancel)
	if !j.IsOver() {
		t.goOn(call, j)
		return err
	}
	t.at(ctx, PointEffectDone)
	t.keep(call, j, call.Nonce)
	return err
}

// start makes the start of a call durable, together with everything not yet written.
func (t *execution) start(ctx context.Context, call *turnkeeper.ToolCall) error {
	t.events.Mark()
	t.pending.Starts = append(t.pending.Starts, newStart(call))
	t.startEvent(call)
	return t.commit(ctx)
}

func newStart(call *turnkeeper.ToolCall) turnkeeper.CallStart {
	return turnkeeper.CallStart{Key: call.Key, Nonce: rand.Text(), Attempt: call.Starts + 1, Effect: call.Effect}
}

// runTransactional runs a call inside the transaction that records it.
func (t *execution) runTransactional(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if t.pending.Round != nil || t.pending.hasEffect() {
		if err := t.commit(ctx); err != nil {
			return err
		}
		if !t.timeFor(spec) {
			t.denyRest(t.runnable())
			return nil
		}
	}
	t.at(ctx, pointTransactEnter)
	start := newStart(call)
	result, err := t.journal.Transact(ctx, start, t.timeout(spec)+tools.DefaultGrace, func(ctx context.Context) turnkeeper.CallResult {
		execute, id := t.prepare(call)
		done := execute(ctx)
		result := t.take(call, done.Result, id)
		result.Nonce, result.Duration, result.Ran, result.Usage = start.Nonce, done.Took, !call.Paging, done.Used
		// A call that did not succeed is rolled back, and so has failed.
		result.State = turnkeeper.CallFailed
		if done.Outcome == tools.Succeeded {
			result.State = turnkeeper.CallSucceeded
		}
		t.at(ctx, pointTransactRan)
		return result
	})
	if err != nil {
		return &journalError{err}
	}
	call.Starts, call.Nonce = start.Attempt, start.Nonce
	t.startEvent(call)
	t.apply(call, result)
	t.at(ctx, pointTransactLeave)
	return nil
}
