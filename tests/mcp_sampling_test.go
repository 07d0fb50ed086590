package tests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
)

// TestAPublicServerAsksAModel has the public server everything ask for answers of a
// model, by real workers: the agent's model gives one, at the expense of the turn.
func TestAPublicServerAsksAModel(t *testing.T) {
	t.Parallel()
	h := withPublicServers(t)
	settings, err := os.ReadFile(filepath.Join(h.dir, "turnkeeper.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	h.write("turnkeeper.yaml", strings.Replace(string(settings), "  everything:\n", "  everything:\n    sampling: allow\n    max_sampling_calls: 1\n", 1))
	servers := "mcp_servers:\n  everything: [trigger-sampling-request]"
	h.agent("clerk", servers, "budget: {turn_calls: 10}", "async_timeout: 60s")
	h.agent("poor", servers, "budget: {turn_calls: 1}", "async_timeout: 60s")
	turns := rounds(calls(inferencetest.Call{
		ID: "asks", Name: "everything__trigger-sampling-request", Arguments: `{"prompt":"a word of praise","maxTokens":20}`,
	}), text("done"))
	h.model.Then(func(r recorded) reply {
		if r.Chat().Messages[0].Text() == "You are a helpful test server." {
			return text("Well asked.")
		}
		return turns(r)
	})
	h.startWorker()

	turn := h.turnOf(h.enqueue("clerk", "Ask for praise."))
	if got := answers(turn)["asks"]; got.State != "succeeded" || !strings.Contains(got.Result, "Well asked.") {
		t.Errorf("%s: %s", got.State, got.Result)
	}
	asked := h.requests(3)[1].Chat()
	if n := len(asked.Messages); n != 2 || !strings.HasSuffix(asked.Messages[1].Text(), "context: a word of praise") || len(asked.Tools) != 0 {
		t.Errorf("the model was asked %+v", asked)
	}
	if n := query[int](h, "select calls from spend where scope = 'turn:' || (select max(id) from turns)"); n != 3 {
		t.Errorf("%d model calls are booked for the turn", n)
	}
	if n := query[int](h, "select count(*) from turn_events where type = 'notice' and data->>'text' like 'everything__trigger-sampling-request: asked the model %, which took % tokens'"); n != 1 {
		t.Errorf("%d events tell of the question", n)
	}

	h.turnOf(h.enqueue("poor", "Ask for praise."))
	if got := query[string](h, "select shown from calls where agent = 'poor'"); !strings.Contains(got, "the budget allows no more model calls") {
		t.Errorf("without a budget: %s", got)
	}
	if got := query[string](h, "select state || ' ' || stop_reason from turns where agent = 'poor'"); got != "degraded budget" {
		t.Errorf("the turn is %s", got)
	}
}
