package core_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

func page(id, arguments string) inferencetest.Call {
	return inferencetest.Call{ID: id, Name: "get_continuation", Arguments: arguments}
}

// A provider that repeats call ids: each result is paged by the id in its marker. Results of the turn before can be
// read too, by an id that is not of this turn, and not passed on.
func TestIDsThatAreRepeated(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_tool_result_chars: 100", "max_rounds: 6", "output_handles: true")
	first, second := strings.Repeat("first one ", 30), strings.Repeat("second 日 ", 30)
	e.Ledger.SetAnswer("one", first)
	e.Ledger.SetAnswer("two", second)
	again := func(label string) inferencetest.Call {
		c := env.MarkerCall("mark_none", label)
		c.ID = "call_1"
		return c
	}
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Two." {
			theirs := env.Query[string](e, "select id from outputs order by turn_id, round limit 1")
			return env.Rounds(inferencetest.Calls(again("three")), inferencetest.Calls(
				page("other", `{"tool_call_id":"round-2-tool-1"}`), page("mine", `{"tool_call_id":"call_1"}`),
				page("older", `{"tool_call_id":"`+theirs+`"}`),
				inferencetest.Call{ID: "stored", Name: "get_tool_output", Arguments: `{"id":"` + theirs +
					`","mode":"raw"}`},
				inferencetest.Call{ID: "handle", Name: "mark_none", Arguments: `{"label":"output:` + theirs + `"}`},
			), inferencetest.Text("done"))(r)
		}
		return env.Rounds(inferencetest.Calls(again("one")), inferencetest.Calls(again("two")), inferencetest.Calls(
			page("a", `{"tool_call_id":"call_1"}`), page("b", `{"tool_call_id":"round-2-tool-1"}`),
			page("c", `{"tool_call_id":"2","offset":200}`),
		), inferencetest.Text("done"))(r)
	})
	e.StartWorker()
	got := e.TurnOf(e.Enqueue("clerk", "One.")).CallsByWireID()
	for id, want := range map[string]string{
		"call_1": first[:100] +
			"\n\n[truncated — showing 100/300 chars. Call get_continuation with tool_call_id=\"call_1\" to read more]",
		"round-2-tool-1": string([]rune(second)[:100]) +
			"\n\n[truncated — showing 100/270 chars. Call get_continuation with tool_call_id=\"round-2-tool-1\" to read more]",
		"a": first[100:200] +
			"\n\n[truncated — showing 100-200/300 chars. 100 chars remaining. Call get_continuation with tool_call_id=\"call_1\" offset=200 to read more]",
		"b": string([]rune(second)[100:200]) +
			"\n\n[truncated — showing 100-200/270 chars. 70 chars remaining. Call get_continuation with tool_call_id=\"round-2-tool-1\" offset=200 to read more]",
		"c": string([]rune(second)[200:]),
	} {
		if got[id].Result != want {
			t.Errorf("%s is answered\n%q, not\n%q", id, got[id].Result, want)
		}
	}
	other := e.TurnOf(e.Enqueue("clerk", "Two.")).CallsByWireID()
	for id, want := range map[string]string{
		"other":  `{"error":"Unknown tool ID: round-2-tool-1"}`, // the call itself
		"older":  first[100:200] + "\n\n[truncated — showing 100-200/300 chars.",
		"mine":   `{"error":"offset 12 is past the end: there are 12 characters"}`,
		"stored": first,
		"handle": "invalid arguments: output:",
	} {
		if !strings.HasPrefix(other[id].Result, want) || id == "handle" && !strings.Contains(other[id].Result,
			": no earlier call or result of this turn has that id") {
			t.Errorf("%s is answered %q", id, other[id].Result)
		}
	}
}

// A model that only pages ends at its bounds. Every round counts, and no page is charged.
func TestAModelThatOnlyPages(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_tool_result_chars: 10")
	e.WriteAgent("greedy", env.MarkerTools, "max_tool_result_chars: 10")
	e.Ledger.SetAnswer("long", strings.Repeat("0123456789", 200))
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.RoundOf(r) == 1 {
			return env.MarkerReply("mark_none", "long")
		}
		pages := 1
		if env.NewestMessage(r) == "Greedily." {
			pages = 30
		}
		var all []inferencetest.Call
		for i := range pages {
			all = append(all, page(fmt.Sprintf("page_%d_%d", env.RoundOf(r), i), `{"tool_call_id":"call_long"}`))
		}
		return inferencetest.Calls(all...)
	})
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "One by one."))
	e.WantEnd(turn, "degraded", "max_rounds", 20)
	if turn.Charged != 2 || turn.Executed != 1 { // the first, and the announced last
		t.Errorf("%d rounds are charged, %d calls executed", turn.Charged, turn.Executed)
	}
	for i, c := range turn.Calls()[1:19] {
		want := fmt.Sprintf("showing %d-%d/2000 chars", 10*i+10, 10*i+20)
		if c.State != "succeeded" || !strings.Contains(c.Result, want) {
			t.Errorf("page %d is %s: %s", i+1, c.State, c.Result)
		}
	}
	greedy := e.TurnOf(e.Enqueue("greedy", "Greedily."))
	e.WantEnd(greedy, "degraded", "max_tool_calls", 5) // the last round was announced
	denied := 0
	for _, c := range greedy.Calls() {
		if c.State == "denied" {
			denied++
		}
	}
	if denied != 26+30 { // of 90, 64 are allowed, and none in the last round
		t.Errorf("%d calls were denied", denied)
	}
	e.Ledger.WantRuns("long", 2)
}
