package agentturn

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
)

func key(round, ordinal int) turnkeeper.CallKey {
	return turnkeeper.CallKey{Round: round, Ordinal: ordinal}
}

func TestStartsThatWereNotWritten(t *testing.T) {
	var p pending
	p.Starts = []turnlog.CallStart{{Key: key(1, 1), Nonce: "a"}, {Key: key(1, 2), Nonce: "b"}}
	p.answer(turnlog.CallResult{Key: key(1, 2), Nonce: "b", State: turnkeeper.CallRunning})
	if !p.dropStarts() {
		t.Error("no start was dropped")
	}
	if diff := cmp.Diff([]turnlog.CallStart{{Key: key(1, 2), Nonce: "b"}}, p.Starts); diff != "" {
		t.Error(diff)
	}
	if p.dropStarts() {
		t.Error("the start of a call that has run was dropped")
	}
	p.dropResult("b")
	if len(p.Results) != 0 || p.hasEffect() {
		t.Errorf("%+v", p.Results)
	}
}

// TestAResultTakesThePlaceOfTheFirst checks that a call that ends before its move to the
// background was written has only one result.
func TestAResultTakesThePlaceOfTheFirst(t *testing.T) {
	var p pending
	if !p.empty() {
		t.Error("a new entry is not empty")
	}
	p.answer(turnlog.CallResult{Key: key(1, 1), Nonce: "a", State: turnkeeper.CallRunning})
	p.answer(turnlog.CallResult{Key: key(1, 1), Nonce: "a", State: turnkeeper.CallSucceeded, Output: &turnkeeper.Output{}})
	if len(p.Results) != 1 || p.Results[0].State != turnkeeper.CallSucceeded || !p.hasOutput() || !p.hasEffect() || p.empty() {
		t.Errorf("%+v", p)
	}
}

// TestModelsOfAnEntry checks that an entry reports a model by its latest call: as working
// or as failing.
func TestModelsOfAnEntry(t *testing.T) {
	var p pending
	p.answered("b/m")
	p.answered("a/m")
	p.failed(modelhealth.Failure{Model: "b/m"})
	p.failed(modelhealth.Failure{Model: "c/m", Seen: 1})
	p.failed(modelhealth.Failure{Model: "c/m", Seen: 2})
	p.answered("a/m")
	if diff := cmp.Diff([]string{"a/m"}, p.Answered); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]modelhealth.Failure{{Model: "b/m"}, {Model: "c/m", Seen: 2}}, p.ModelFailures); diff != "" {
		t.Error(diff)
	}
}

func TestLookups(t *testing.T) {
	call := func(round, ordinal int, effect turnkeeper.Effect, state turnkeeper.CallState) turnkeeper.ToolCall {
		return turnkeeper.ToolCall{Key: key(round, ordinal), Effect: effect, State: state}
	}
	detached := call(2, 2, turnkeeper.EffectOnce, turnkeeper.CallRunning)
	detached.Awaited = true
	c := calls{
		{Number: 1, Charged: true, Calls: []turnkeeper.ToolCall{call(1, 1, turnkeeper.EffectNone, turnkeeper.CallSucceeded)}},
		{Number: 2, Charged: true, Calls: []turnkeeper.ToolCall{
			call(2, 1, turnkeeper.EffectNone, turnkeeper.CallPlanned), detached, call(2, 3, turnkeeper.EffectOnce, turnkeeper.CallPlanned),
		}},
	}
	keys := func(calls []*turnkeeper.ToolCall) (keys []turnkeeper.CallKey) {
		for _, call := range calls {
			keys = append(keys, call.Key)
		}
		return keys
	}
	if diff := cmp.Diff([]turnkeeper.CallKey{key(2, 1), key(2, 3)}, keys(c.open())); diff != "" {
		t.Error("open:", diff)
	}
	if diff := cmp.Diff([]turnkeeper.CallKey{key(2, 2)}, keys(c.detached())); diff != "" {
		t.Error("detached:", diff)
	}
	if upTo := c.upTo(key(2, 1)); len(upTo) != 2 || upTo[1].Key != key(2, 1) {
		t.Errorf("up to: %v", upTo)
	}
	if c.blocked(c.call(key(2, 1))) || !c.blocked(c.call(key(2, 3))) {
		t.Error("an effect is held by the effect before it, and nothing else is held")
	}
	b := turnkeeper.Bounds{MaxRounds: 3, RoundCeiling: 10}
	if c.usedUp(b) || !c.nextIsLast(b) {
		t.Error("of three rounds, the next is the last")
	}
	c.call(key(2, 3)).State, c.call(key(2, 3)).Shown = turnkeeper.CallDenied, overLimit+"2 tool calls a turn; this one was not run"
	if (&ledger{task: &task{}, rounds: c}).lastStop() != turnkeeper.StopMaxToolCalls {
		t.Error("a call over the limit ends the turn")
	}
}
