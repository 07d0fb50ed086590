package agentturn

import (
	"context"
	"crypto/rand"

	"turnkeeper"
	"turnkeeper/tools"
)

// runEffect runs one call of effect keyed or once: start on record, time check,
// effect. Its result is left for the next write.
func (t *turn) runEffect(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if err := t.start(ctx, call); err != nil {
		return err
	}
	if !t.timeFor(spec) {
		t.answer(call, textResult(call, turnkeeper.CallFailed, shownNoTime)) // it certainly did not run
		if open := t.open(); len(open) > 0 {
			t.denyRest(open)
		}
		return nil
	}
	t.at(ctx, PointChecked)
	if ctx.Err() != nil {
		t.notBegun(call)
		return context.Cause(ctx)
	}
	done := t.runTool(ctx, call)
	t.at(ctx, PointEffectDone)
	t.keep(call, done, call.Nonce)
	return nil
}

// notBegun keeps that a call with a start on record certainly did not run. One
// that may be started again is left to the next dispatch, if there is one.
func (t *turn) notBegun(call *turnkeeper.ToolCall) {
	if call.Effect.Repeatable() {
		t.interrupted[call.Key] = textResult(call, turnkeeper.CallCancelled, shownNotBegun)
	} else {
		t.answer(call, textResult(call, turnkeeper.CallFailed, shownNotBegun))
	}
}

// start makes the start of a call durable, together with what else is owed.
func (t *turn) start(ctx context.Context, call *turnkeeper.ToolCall) error {
	t.told = len(t.next.Events)
	t.next.Starts = append(t.next.Starts, newStart(call))
	t.tellStarted(call)
	return t.commit(ctx)
}

// dropStarts takes back a start that could not be written: the call did not
// run, and must not look as if it had.
func (t *turn) dropStarts() {
	if len(t.next.Starts) > 0 {
		t.next.Starts, t.next.Events = nil, t.next.Events[:t.told]
	}
}

func newStart(call *turnkeeper.ToolCall) turnkeeper.CallStart {
	return turnkeeper.CallStart{Key: call.Key, Nonce: rand.Text(), Attempt: call.Starts + 1, Effect: call.Effect}
}

func (t *turn) tellStarted(call *turnkeeper.ToolCall) {
	t.event(turnkeeper.EventToolStarted, call.Key.Round, 0, ToolData{
		Call: call.Key.String(), Name: call.Name, State: turnkeeper.CallStarted,
	})
}

// runTransactional runs a call inside the transaction that records it.
func (t *turn) runTransactional(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	if t.next.Round != nil || t.owesResult() {
		if err := t.commit(ctx); err != nil {
			return err
		}
		if !t.timeFor(spec) {
			t.denyRest(t.open())
			return nil
		}
	}
	t.at(ctx, PointTransactEnter)
	start := newStart(call)
	result, err := t.journal.Transact(ctx, start, func(ctx context.Context) turnkeeper.CallResult {
		done := t.runTool(ctx, call)
		result := t.take(call, done.Result)
		result.Nonce, result.Duration, result.Ran = start.Nonce, done.took, !call.Paging
		// Whatever did not succeed is undone, and so has failed.
		result.State = turnkeeper.CallFailed
		if done.Outcome == tools.Succeeded {
			result.State = turnkeeper.CallSucceeded
		}
		t.at(ctx, PointTransactRan)
		return result
	})
	if err != nil {
		return &journalError{err}
	}
	call.Starts, call.Nonce = start.Attempt, start.Nonce
	t.tellStarted(call)
	t.apply(call, result)
	t.at(ctx, PointTransactLeave)
	return nil
}
