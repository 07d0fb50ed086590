package agentturn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/asks"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A tool that needs input from a person returns a tools.InputRequest. The call stays started, and an ask of kind input
// is opened. After the ask is closed, a write marks it as used, and the call runs again with the answer. This is the same
// start of the call. If the worker is lost after that write, it is like a loss in any other run.

// input returns the newest ask for input of a call's tool, or nil.
func (p *people) input(key turnkeeper.CallKey) (newest *asks.Ask) {
	for n := 1; ; n++ {
		ask := p.of(key, asks.KindInput, n)
		if ask == nil {
			return newest
		}
		newest = ask
	}
}

// awaitsInput reports whether a call waits for input, or has not continued with it yet.
func (p *people) awaitsInput(call *turnkeeper.ToolCall) bool {
	ask := p.input(call.Key)
	return ask != nil && !ask.Used && call.State == turnkeeper.CallStarted
}

// inputOf returns the input for the next run of a call, or nil.
func (p *people) inputOf(key turnkeeper.CallKey) *tools.Input {
	ask := p.input(key)
	if ask == nil || !ask.Closed() {
		return nil
	}
	answer, _ := inputAnswer(ask)
	return &tools.Input{N: ask.N, State: ask.Resume, Answer: answer, Denied: ask.State == asks.Denied}
}

// inputAnswer returns the answer in canonical form. It is nil if there is none or if it is invalid. Then fault gives the reason.
func inputAnswer(ask *asks.Ask) (answer json.RawMessage, fault string) {
	if ask.State != asks.Answered {
		return nil, ""
	}
	schema, err := tools.CompileSchema(json.RawMessage(ask.Schema))
	if err != nil {
		return nil, err.Error()
	}
	args, fault := tools.CheckArguments(schema, ask.Answer)
	if fault != "" {
		return nil, fault
	}
	return json.RawMessage(args.Canonical), ""
}

// passInput waits for the input of a call. cleared is true if the call can continue. After an invalid answer it asks again.
func (e gate) passInput(ctx context.Context, call *turnkeeper.ToolCall) (cleared bool, err error) {
	approvals{e.ledger}.useEdited(call)
	ask := e.people.input(call.Key)
	if !ask.Closed() {
		return false, e.waitForPerson(ctx)
	}
	if _, fault := inputAnswer(ask); fault != "" && ask.N < tools.MaxInputs {
		again := ask.Question
		again.N++
		again.Reason = "The answer was invalid (" + fault + "). " + e.people.of(call.Key, asks.KindInput, 1).Reason
		e.put(again)
		return false, e.waitForPerson(ctx)
	}
	return true, nil
}

// askForInput opens an ask if a run needs input. It fails a call that asks too often. It returns false if the run did not ask.
func (e gate) askForInput(call *turnkeeper.ToolCall, run *toolrun.Run) (asked bool) {
	request, ok := errors.AsType[*tools.InputRequest](run.Result.Err)
	spec, _ := e.offered.Spec(call.Name)
	if !ok || run.Result.Outcome != tools.NeedsInput || !spec.AsksInput {
		return false
	}
	n := 1
	if last := e.people.input(call.Key); last != nil {
		n = last.N + 1
	}
	over := ""
	if n > tools.MaxInputs {
		over = fmt.Sprintf("asked for input more than %d times, and did not finish", tools.MaxInputs)
	} else if err := e.questions.take(); err != nil {
		over = "asked for input, but " + err.Error()
	}
	if over != "" {
		result := textResult(call, turnkeeper.CallFailed, fmt.Sprintf("tool error: '%s' %s", call.Name, over))
		result.Duration, result.Ran, result.Usage = run.Result.Took, true, run.Result.Used
		e.answer(call, result)
		return true
	}
	q := approvals{e.ledger}.question(call, asks.KindInput, n, policy.Decision{Reason: request.Question})
	q.Schema, q.Resume = string(request.Schema), request.State
	e.put(q)
	e.models.sideUsage = e.models.sideUsage.Add(run.Result.Used)
	return true
}

// resume runs a started call again with the input that its tool requested.
func (e gate) resume(ctx context.Context, call *turnkeeper.ToolCall, spec tools.Spec) error {
	e.pending.Inputs = append(e.pending.Inputs, e.people.input(call.Key).ID)
	if err := e.commit(ctx); err != nil {
		return err
	}
	e.people.input(call.Key).Used = true
	e.logInput(call)
	if !e.timeFor(spec) {
		e.answer(call, textResult(call, turnkeeper.CallFailed, shownInputNotUsed))
		return nil
	}
	return starts(e).run(ctx, call)
}

const shownInputNotUsed = "not finished: the turn was stopped before the call went on with the input that it had asked for."

// inputNote returns the note to the model about the newest input of a call.
func (l *ledger) inputNote(call *turnkeeper.ToolCall) string {
	ask := l.people.input(call.Key)
	switch {
	case ask == nil || !ask.Used:
		return ""
	case ask.State == asks.Denied:
		return withComment("[denied: a person declined to give the input that this call asked for. The tool then returned the following.]", ask)
	case ask.State == asks.Answered && ask.Comment != "":
		return "[Comment of the person who gave the input of this call: " + ask.Comment + "]"
	case ask.State == asks.Answered:
		if _, fault := inputAnswer(ask); fault == "" {
			return ""
		}
	}
	return "[denied: nobody gave the input that this call asked for in time. The tool then returned the following.]"
}

// logInput logs how long a call waited for its input.
func (l *ledger) logInput(call *turnkeeper.ToolCall) {
	ask := l.people.input(call.Key)
	l.log.Info("a call goes on with input of a person", zap.Stringer("call", call.Key), zap.String("tool", call.Name),
		zap.String("state", string(ask.State)), zap.Duration("waited", ask.ClosedAt.Sub(ask.OpenedAt).Round(time.Second)))
}
