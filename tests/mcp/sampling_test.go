package mcp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// The public server "everything" requests sampling from workers: the agent's model answers, and its usage
// counts for the turn.
func TestAPublicServerAsksAModel(t *testing.T) {
	t.Parallel()
	e := withPublicServers(t)
	settings, err := os.ReadFile(filepath.Join(e.Dir, "turnkeeper.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	e.WriteFile("turnkeeper.yaml", strings.Replace(string(settings), "  everything:\n",
		"  everything:\n    sampling: allow\n    max_sampling_calls: 1\n", 1))
	servers := "mcp_servers:\n  everything: [trigger-sampling-request]"
	e.WriteAgent("clerk", servers, "budget: {turn_calls: 10}", "async_timeout: 60s")
	e.WriteAgent("poor", servers, "budget: {turn_calls: 1}", "async_timeout: 60s")
	turns := env.Rounds(inferencetest.Calls(inferencetest.Call{
		ID: "asks", Name: "everything__trigger-sampling-request",
		Arguments: `{"prompt":"a word of praise","maxTokens":20}`,
	}), inferencetest.Text("done"))
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if r.Chat().Messages[0].Text() == "You are a helpful test server." {
			return inferencetest.Text("Well asked.")
		}
		return turns(r)
	})
	e.StartWorker()

	turn := e.TurnOf(e.Enqueue("clerk", "Ask for praise."))
	if got := turn.CallsByWireID()["asks"]; got.State != "succeeded" || !strings.Contains(got.Result, "Well asked.") {
		t.Errorf("%s: %s", got.State, got.Result)
	}
	asked := e.WantRequests(3)[1].Chat()
	if n := len(asked.Messages); n != 2 || !strings.HasSuffix(asked.Messages[1].Text(), "context: a word of praise") ||
		len(asked.Tools) != 0 {
		t.Errorf("the model was asked %+v", asked)
	}
	if n := env.Query[int](e, "select calls from spend where scope = 'turn:' || (select max(id) from turns)"); n != 3 {
		t.Errorf("%d model calls are booked for the turn", n)
	}
	if n := env.Query[int](e,
		"select count(*) from turn_events where type = 'notice' and data->>'text' like 'everything__trigger-sampling-request: asked the model %, which took % tokens'"); n != 1 {
		t.Errorf("%d events have the question", n)
	}

	e.TurnOf(e.Enqueue("poor", "Ask for praise."))
	if got := env.Query[string](e, "select shown from calls where agent = 'poor'"); !strings.Contains(got,
		"the budget allows no more model calls") {
		t.Errorf("without a budget: %s", got)
	}
	if got := env.Query[string](e,
		"select state || ' ' || stop_reason from turns where agent = 'poor'"); got != "degraded budget" {
		t.Errorf("the turn is %s", got)
	}
}
