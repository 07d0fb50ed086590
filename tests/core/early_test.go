package core_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// wholeCall returns a chunk of an answer with a whole call.
func wholeCall(index int, c inferencetest.Call) string {
	return fmt.Sprintf(`{"id":"x","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":%q,`+
		`"type":"function","function":{"name":%q,"arguments":%q}}]},"finish_reason":null}]}`, index, c.ID, c.Name,
		c.Arguments)
}

// While the model still speaks, the reads run that their tool lets start early, but no effect. A first answer that
// breaks is thrown away. In a second turn the reads are answered with what is kept, and nothing runs.
func TestReadsWhileTheModelSpeaks(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+"tools: {mark_none: {early: true, cache: 10m}}\n")
	calls := []inferencetest.Call{env.MarkerCall("mark_none", "a"), env.MarkerCall("mark_none", "b"),
		env.MarkerCall("mark_once", "c"), env.MarkerCall("mark_none", "d"), env.MarkerCall("mark_once", "e")}
	var chunks []string
	for i, c := range calls {
		c.ID = "call_" + string(rune('a'+i))
		calls[i] = c
		chunks = append(chunks, wholeCall(i, c))
	}
	speaks := func(began <-chan struct{}, end inferencetest.Reply) inferencetest.Reply {
		return func(x *inferencetest.Exchange) {
			inferencetest.OpenSSE(chunks...)(x)
			if x.Wait(began) {
				end(x)
			}
		}
	}
	broke, ended := make(chan struct{}), make(chan struct{})
	e.Model.Add(speaks(broke, inferencetest.Reset()), speaks(ended, inferencetest.SSE(
		`{"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`)),
		inferencetest.Text("Marked."), inferencetest.Calls(calls[:2]...), inferencetest.Text("Seen."))
	e.StartWorker()
	id := e.Enqueue("clerk", "Mark.")
	for n, release := range []chan struct{}{broke, ended} {
		e.Ledger.Await("a", n+1)
		e.Ledger.Await("b", n+1)
		for _, label := range []string{"c", "d", "e"} {
			e.Ledger.WantRuns(label, 0)
		}
		close(release)
	}
	turn := e.TurnOf(id)
	e.WantEnd(turn, "succeeded", "none", 2)
	for label, runs := range map[string]int{"a": 2, "b": 2, "c": 1, "d": 1, "e": 1} {
		e.Ledger.WantRuns(label, runs)
	}
	for _, call := range calls {
		if got := turn.CallsByWireID()[call.ID]; got.State != "succeeded" ||
			strings.Contains(got.Result, "is kept") {
			t.Errorf("%s is %s: %q", call.ID, got.State, got.Result)
		}
	}

	turn = e.TurnOf(e.Enqueue("clerk", "Look."))
	e.WantEnd(turn, "succeeded", "none", 2)
	for _, label := range []string{"a", "b"} {
		e.Ledger.WantRuns(label, 2)
	}
	requests := e.Model.Requests()
	messages := requests[len(requests)-1].Chat().Messages
	for i, name := range []string{"a", "b"} {
		if got := messages[len(messages)-2+i].Text(); !strings.HasPrefix(got, "[This result is kept: it is ") {
			t.Errorf("the model is shown of %s: %q", name, got)
		}
	}
}
