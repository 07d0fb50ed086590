package agentturn

import (
	"context"
	"crypto/rand"
	"slices"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// runEffect runs one call of effect keyed or once: it writes the start with the
// pending entry, checks that enough time is left, and runs the tool. The result goes into the next write.
func (x *executor) runEffect(ctx context.Context, call *calls.Call) error {
	x.events.Mark()
	x.pending.Starts = append(x.pending.Starts, newStart(call))
	x.startEvent(call)
	if err := x.commit(ctx); err != nil {
		return err
	}
	if !x.clock.timeFor(call.Spec) {
		x.answer(call, call.Result(turnkeeper.CallFailed, prompt.ShownNoTime)) // it did not run
		if open := x.calls.Runnable(); len(open) > 0 {
			x.denyRest(open)
		}
		return nil
	}
	return x.run(ctx, call)
}

func (x *executor) run(ctx context.Context, call *calls.Call) error {
	x.at(ctx, PointChecked)
	if ctx.Err() != nil {
		x.didNotRun(call)
		return context.Cause(ctx)
	}
	run := x.tooling.launch(ctx, call)
	err := x.awaitDone(ctx, x.tooling.overOrSlow(call, run), run.Cancel)
	if !run.IsOver() {
		x.toBackground(call, run)
		return err
	}
	x.at(ctx, PointEffectDone)
	if x.askForInput(call, run) {
		return err
	}
	x.recordRun(call, run, call.Nonce)
	return err
}

// newStart returns a start of a call.
func newStart(call *calls.Call) turnlog.CallStart { return call.Start(rand.Text()) }

// runTransactional runs a call inside the transaction that records it.
func (x *executor) runTransactional(ctx context.Context, call *calls.Call) error {
	if x.pending.Round != nil || x.pending.hasLabels() && x.rules.seeLabels(call) ||
		slices.ContainsFunc(x.pending.Results, func(r turnlog.CallResult) bool {
			// even if it did not run: another worker might run it
			return x.calls.Call(r.Key).Effect != turnkeeper.EffectNone
		}) {
		if err := x.commit(ctx); err != nil {
			return err
		}
		if !x.clock.timeFor(call.Spec) {
			x.denyRest(x.calls.Runnable())
			return nil
		}
	}
	x.at(ctx, pointTransactEnter)
	start := newStart(call)
	var held leases // of the newest run; the transaction records its result
	defer func() { held.release() }()
	result, err := x.journal.Transact(ctx, start, x.clock.timeout(call.Spec)+tools.DefaultGrace,
		func(ctx context.Context) turnlog.CallResult {
			held.release()
			execute, id := x.tooling.prepare(call)
			done := execute(ctx)
			held = append(held, done.Memory)
			result := x.tooling.callResult(call, done.Result, id)
			result.Nonce, result.Ran = start.Nonce, !call.Paging
			result.Duration, result.Usage = done.Duration, done.Used
			result = call.WithNotes(result)
			// The store rolls back a call that did not succeed, so its outcome is never in doubt.
			result.State = turnkeeper.CallFailed
			if done.Outcome == tools.Succeeded {
				result.State = turnkeeper.CallSucceeded
			}
			x.at(ctx, pointTransactRan)
			return result
		})
	if err != nil {
		return &journalError{err}
	}
	call.Starts, call.Nonce = start.Attempt, start.Nonce
	start.SetArguments(call.ToolCall)
	x.startEvent(call)
	x.apply(call, result)
	x.at(ctx, pointTransactLeave)
	return nil
}
