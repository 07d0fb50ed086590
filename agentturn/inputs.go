package agentturn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/asks"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A tool that needs input from a person returns a tools.InputRequest. The call stays started, and an ask of kind input
// is opened. After the ask is closed, a write marks it as used, and the call runs again with the answer. This is the
// same start of the call. If the worker is lost after that write, it is like a loss in any other run.

// askForInput opens an ask if a run needs input. It fails a call that asks too often. It returns false if the run did
// not ask.
func (x *executor) askForInput(call *calls.Call, run *toolrun.Run) (asked bool) {
	request, ok := errors.AsType[*tools.InputRequest](run.Result.Err)
	if !ok || run.Result.Outcome != tools.NeedsInput || !call.Spec.AsksInput {
		return false
	}
	n := 1
	if last := call.Asks.Input(); last != nil {
		n = last.N + 1
	}
	over := ""
	if n > tools.MaxInputs {
		over = fmt.Sprintf("asked for input more than %d times, and did not finish", tools.MaxInputs)
	} else if err := x.tooling.asker.questions.take(); err != nil {
		over = "asked for input, but " + err.Error()
	}
	if over != "" {
		result := call.Result(turnkeeper.CallFailed, fmt.Sprintf("tool error: '%s' %s", call.Name, over))
		result.Duration, result.Ran, result.Usage = run.Result.Duration, true, run.Result.Used
		x.answer(call, result)
		return true
	}
	q := call.Question(asks.KindInput, n, policy.Decision{Reason: request.Question})
	q.Schema, q.Resume = string(request.Schema), request.State
	x.put(q)
	x.sideUsage = x.sideUsage.Add(run.Result.Used)
	return true
}

// resume runs a started call again with the input that its tool requested.
func (x *executor) resume(ctx context.Context, call *calls.Call) error {
	call.UseEdited()
	x.pending.Inputs = append(x.pending.Inputs, call.Asks.Input().ID)
	if err := x.commit(ctx); err != nil {
		return err
	}
	call.Asks.Input().Used = true
	x.logInput(call)
	if !x.clock.timeFor(call.Spec) {
		x.answer(call, call.Result(turnkeeper.CallFailed, shownInputNotUsed))
		return nil
	}
	return x.run(ctx, call)
}

const shownInputNotUsed = "not finished: the turn was stopped before the call went on with the input that it had asked for."

// logInput logs how long a call waited for its input.
func (x *executor) logInput(call *calls.Call) {
	ask := call.Asks.Input()
	x.log.Info("a call goes on with input of a person", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.String("state", string(ask.State)), zap.Duration("waited", ask.ClosedAt.Sub(ask.OpenedAt).Round(
			time.Second)))
}
