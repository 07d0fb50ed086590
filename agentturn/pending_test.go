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
	p.answer(turnlog.CallResult{Key: key(1, 1), Nonce: "a", State: turnkeeper.CallSucceeded,
		Output: &turnkeeper.Output{}})
	if len(p.Results) != 1 || p.Results[0].State != turnkeeper.CallSucceeded || !p.hasOutput() ||
		!p.hasEffect() || p.empty() {
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
