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
func (e *execution) runEffect(ctx context.Context, call *calls.Call) error {
	e.events.Mark()
	e.pending.Starts = append(e.pending.Starts, newStart(call))
	e.startEvent(call)
	if err := e.commit(ctx); err != nil {
		return err
	}
	if !e.clock.timeFor(call.Spec) {
		e.answer(call, call.Result(turnkeeper.CallFailed, prompt.ShownNoTime)) // it did not run
		if open := e.calls.Runnable(); len(open) > 0 {
			e.denyRest(open)
		}
		return nil
	}
	return e.run(ctx, call)
}

func (e *execution) run(ctx context.Context, call *calls.Call) error {
	e.at(ctx, PointChecked)
	if ctx.Err() != nil {
		e.didNotRun(call)
		return context.Cause(ctx)
	}
	run := e.tooling.launch(ctx, call)
	err := e.awaitDone(ctx, e.tooling.overOrSlow(call, run), run.Cancel)
	if !run.IsOver() {
		e.toBackground(call, run)
		return err
	}
	e.at(ctx, PointEffectDone)
	if e.askForInput(call, run) {
		return err
	}
	e.recordRun(call, run, call.Nonce)
	return err
}

// newStart returns a start of a call.
func newStart(call *calls.Call) turnlog.CallStart { return call.Start(rand.Text()) }

// runTransactional runs a call inside the transaction that records it.
func (e *execution) runTransactional(ctx context.Context, call *calls.Call) error {
	if e.pending.Round != nil || e.pending.hasLabels() && e.rules.seeLabels(call) ||
		slices.ContainsFunc(e.pending.Results, func(r turnlog.CallResult) bool {
			// even if it did not run: another worker might run it
			return e.calls.Call(r.Key).Effect != turnkeeper.EffectNone
		}) {
		if err := e.commit(ctx); err != nil {
			return err
		}
		if !e.clock.timeFor(call.Spec) {
			e.denyRest(e.calls.Runnable())
			return nil
		}
	}
	e.at(ctx, pointTransactEnter)
	start := newStart(call)
	var held leases // of the newest run; the transaction records its result
	defer func() { held.release() }()
	result, err := e.journal.Transact(ctx, start, e.clock.timeout(call.Spec)+tools.DefaultGrace,
		func(ctx context.Context) turnlog.CallResult {
			held.release()
			execute, id := e.tooling.prepare(call)
			done := execute(ctx)
			held = append(held, done.Memory)
			result := e.tooling.callResult(call, done.Result, id)
			result.Nonce, result.Duration, result.Ran, result.Usage = start.Nonce, done.Took, !call.Paging, done.Used
			result = call.WithNotes(result)
			// The store rolls back a call that did not succeed, so its outcome is never in doubt.
			result.State = turnkeeper.CallFailed
			if done.Outcome == tools.Succeeded {
				result.State = turnkeeper.CallSucceeded
			}
			e.at(ctx, pointTransactRan)
			return result
		})
	if err != nil {
		return &journalError{err}
	}
	call.Starts, call.Nonce = start.Attempt, start.Nonce
	start.SetArguments(call.ToolCall)
	e.startEvent(call)
	e.apply(call, result)
	e.at(ctx, pointTransactLeave)
	return nil
}
