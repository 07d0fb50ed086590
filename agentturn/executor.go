package agentturn

import (
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/tools"
)

// An executor does what the steps of calls ask for: it records their starts, runs them here or hands them on, waits for
// them, and records their results. It asks no model for a round, and does not decide what comes next. Only the
// execution's goroutine uses it.
type executor struct {
	*turnState
	tooling    *tooling
	early      *earlyReads
	blockUntil time.Time // until then it blocks for replies of sub-agents
}

// endCall answers a call as a step says, and reports whether it did.
func (x *executor) endCall(call *calls.Call, step calls.Step) (answered bool) {
	switch step.Do {
	case calls.Answer:
		x.answer(call, step.Result)
	case calls.Take:
		result := x.tooling.callResult(call, tools.Result{Text: step.Text}, call.OutputID)
		result.State, result.Ran = turnkeeper.CallSucceeded, true
		x.answer(call, result)
	case calls.Doubt:
		x.markUnknown(call)
	default:
		return false
	}
	return true
}

// endCalls answers the calls as they end in a phase that executes none, and reports whether there was one that does not
// go on.
func (x *executor) endCalls(phase calls.Phase, open []*calls.Call) (any bool) {
	for _, call := range open {
		any = x.endCall(call, call.Next(calls.Turn{Phase: phase})) || any
	}
	return any
}

// didNotRun records that a call did not run although its start is in the journal. A call
// that may run again is left to the next dispatch, if there is one.
func (x *executor) didNotRun(call *calls.Call) {
	shown := shownNeverBegan
	if call.Asks.Input() != nil {
		shown = shownInputNotUsed
	}
	if call.Effect.Repeatable() {
		cut := call.Result(turnkeeper.CallCancelled, shown)
		call.Cut = &cut
	} else {
		x.answer(call, call.Result(turnkeeper.CallFailed, shown))
	}
}

// recordRun records the result of a run. If the end of the turn's context cut the run short,
// the result is only noted: how the dispatch ends decides what is recorded.
func (x *executor) recordRun(call *calls.Call, done *toolrun.Run, nonce string) {
	x.pending.held = append(x.pending.held, done.Result.Memory)
	result := x.tooling.resultOf(call, done)
	x.tooling.keep(call, done.Result, result.Labels)
	result.Nonce, result.Duration, result.Ran, result.State = nonce, done.Result.Duration, !call.Paging,
		stateOf(done.Result.Outcome, call.Effect)
	result.Usage = done.Result.Used
	if result.State == turnkeeper.CallUnknown && x.def.Settles() && !call.WentOn() { // settle asks a person
		call.Doubt = result.Preview
		return
	}
	if result.State == turnkeeper.CallCancelled {
		call.Cut = &result
		return
	}
	x.answer(call, result)
}

// denyRest answers all open calls, because the lease is too short for the first of them:
// the turn goes on to its reply. The outcome of calls that a lost worker had started is
// unknown.
func (x *executor) denyRest(open []*calls.Call) {
	x.log.Warn("not enough time left in this turn", zap.Stringer("call", open[0].Key),
		zap.String("tool", open[0].Name), zap.Duration("lease_left", time.Until(x.clock.lease)),
		zap.Duration("margin", x.clock.margin))
	x.endCalls(calls.OutOfTime, open)
}
