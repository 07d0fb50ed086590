package agentturn_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
)

// markup is an answer whose text is a tool call.
func markup() inferencetest.Step {
	return inferencetest.Fail(inference.Markup{Name: "Hermes", VLLM: "hermes", SGLang: "qwen25"}.Unparsed())
}

func refusesRecord(why inference.RecordPart) inferencetest.Step {
	return inferencetest.Fail(&inference.Error{Class: inference.ClassInvalid, Record: why, Status: 400,
		Detail: "as scripted"})
}

// TestTheNextModelIsAskedAfterMarkup checks that a model gets one hint, and that the next model of the chain is then
// asked without it.
func TestTheNextModelIsAskedAfterMarkup(t *testing.T) {
	b := newBench(t, markup(), markup()).with(read("look"))
	other := inferencetest.NewScript(says("fine"))
	b.models["main/other"] = other
	b.def.FallbackModels = []string{"main/other"}
	b.wantReply(b.run(t.Context()), turnkeeper.TurnSucceeded, turnkeeper.StopNone, "fine")
	if n := len(b.script.Requests()); n != 2 {
		t.Errorf("the first model got %d requests", n)
	}
	if messages := other.Requests()[0].Messages; len(messages) != 2 {
		t.Errorf("the other model got %+v", messages)
	}
	if last := b.script.Requests()[1].Messages; !strings.HasPrefix(last[len(last)-1].Text, "# System Notice") {
		t.Errorf("the second request has no hint: %+v", last)
	}
}

// lastText returns the last message of a request.
func lastText(r inference.Request) string { return r.Messages[len(r.Messages)-1].Text }

// TestTheHintOutlivesAnOverflow checks that a request that is made again, because it was too long or gets a summary,
// keeps the hint.
func TestTheHintOutlivesAnOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, markup(), overflows(0, 0), says("done"))
		for id := range turnkeeper.TurnID(3) {
			b.store.history = append(b.store.history, turnlog.Past{TurnID: id + 1, Body: "old",
				Reply: strings.Repeat("a long word ", 1000)})
		}
		if got := b.run(t.Context()); got.Reply != "done" || len(b.requests()) != 3 {
			t.Fatalf("%+v after %d requests", got, len(b.requests()))
		}
		for i, r := range b.requests()[1:] {
			if !strings.Contains(lastText(r), "a tool call written as text") {
				t.Errorf("request %d has no hint: %q", i+2, lastText(r))
			}
		}
	})
}

// TestTheHintOfTheLastRound checks that a model that wrote a call as text while tools are off is not told to call them.
func TestTheHintOfTheLastRound(t *testing.T) {
	b := newBench(t, asks("look"), markup(), says("done")).with(read("look"))
	b.bounds.MaxRounds = 2
	b.wantReply(b.run(t.Context()), turnkeeper.TurnSucceeded, turnkeeper.StopNone, "done")
	if got := lastText(b.requests()[2]); !strings.Contains(got, "a tool call written as text") || strings.Contains(got,
		"Call tools") {
		t.Errorf("the hint is %q", got)
	}
}

// TestMarkupInTheLastRound checks that a turn whose last round is markup ends with the summary of its calls.
func TestMarkupInTheLastRound(t *testing.T) {
	b := newBench(t, asks("pay"), markup(), markup()).with(once("pay"))
	b.bounds.MaxRounds = 2
	b.wantReply(b.run(t.Context()), turnkeeper.TurnDegraded, turnkeeper.StopMaxRounds,
		"Tool results: 1 succeeded, 0 failed.\n- pay: succeeded")
}

// TestMarkupAfterAnEffect checks that a turn with an effect degrades after markup, and names the server's settings.
func TestMarkupAfterAnEffect(t *testing.T) {
	b := newBench(t, asks("pay"), markup(), markup()).with(once("pay"))
	o := b.run(t.Context())
	b.wantReply(o, turnkeeper.TurnDegraded, turnkeeper.StopInferenceError,
		"Tool results: 1 succeeded, 0 failed.\n- pay: succeeded")
	if o.ErrorClass != "bad_output" || !strings.Contains(o.Error, "--tool-call-parser hermes") {
		t.Errorf("the error is %s: %s", o.ErrorClass, o.Error)
	}
}

// TestARefusedRecordIsWrittenInAnotherForm checks the requests after refusals in the middle of a turn.
func TestARefusedRecordIsWrittenInAnotherForm(t *testing.T) {
	for _, c := range []struct {
		name     string
		refusals []inference.RecordPart
		requests int
		calls    bool // the last request has the calls of round 1 as calls
		reasoned bool
		fails    bool
	}{
		{"reasoning demanded", []inference.RecordPart{inference.RecordLacksReasoning}, 3, true, true, false},
		{"reasoning refused, and there is none", []inference.RecordPart{inference.RecordReasoning}, 3,
			false, false, false},
		{"calls refused", []inference.RecordPart{inference.RecordCalls}, 3, false, false, false},
		{"refused without a reason", []inference.RecordPart{""}, 3, false, false, false},
		{"reasoning demanded, then refused without a reason", []inference.RecordPart{inference.RecordLacksReasoning, ""}, 4,
			false, true, false},
		{"refused in each form", []inference.RecordPart{"", ""}, 3, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, asks("look")).with(read("look"))
			for _, why := range c.refusals {
				b.script.Add(refusesRecord(why))
			}
			b.script.Then(says("done"))
			o := b.run(t.Context())
			if c.fails != (o.State == turnkeeper.TurnFailed) || !c.fails && o.Reply != "done" {
				t.Errorf("the turn ended %s: %s", o.State, o.Reply)
			}
			requests := b.script.Requests()
			if len(requests) != c.requests {
				t.Fatalf("%d requests, want %d", len(requests), c.requests)
			}
			last := requests[len(requests)-1]
			calls := slices.ContainsFunc(last.Messages, func(m inference.Message) bool { return len(m.Calls) > 0 })
			if calls != c.calls || last.Reasoned != c.reasoned {
				t.Errorf("the last request has calls: %v, demands reasoning: %v", calls, last.Reasoned)
			}
		})
	}
}

// TestARefusalWithoutARecordIsTheMessages checks that a first request is not sent again.
func TestARefusalWithoutARecordIsTheMessages(t *testing.T) {
	b := newBench(t, refusesRecord(inference.RecordCalls), says("never asked")).with(read("look"))
	if o := b.run(t.Context()); o.State != turnkeeper.TurnFailed || o.Retry || len(b.script.Requests()) != 1 {
		t.Errorf("%+v after %d requests", o, len(b.script.Requests()))
	}
}
