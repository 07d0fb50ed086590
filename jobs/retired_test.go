package jobs_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/asks"
	"turnkeeper/inference"
	"turnkeeper/jobs"
	"turnkeeper/policy"
	"turnkeeper/storage/operate"
	"turnkeeper/tools"
)

// A household is the models of two agents: the boss gives each message to the helper, who pays for it. Each answers
// with the result of its call.
type household struct{}

func (household) Find(string) (inference.Provider, agentturn.ModelInfo, error) {
	return household{}, agentturn.ModelInfo{Provider: "script", Model: "m"}, nil
}

func (household) Generate(_ context.Context, r inference.Request,
	_ func(inference.Delta)) (inference.Response, error) {
	response := inference.Response{Provider: "script", Model: "m", FinishReason: "stop"}
	last := r.Messages[len(r.Messages)-1]
	switch {
	case last.Role == inference.RoleTool:
		response.Text = last.Text
	case strings.Contains(r.Messages[0].Text, "You are the boss."):
		response.Calls = []inference.Call{{ID: "a", Name: turnkeeper.ToolSpawnAgent,
			Arguments: `{"agent":"helper","task":"pay"}`}}
	default:
		response.Calls = []inference.Call{{ID: "a", Name: "pay", Arguments: "{}"}}
	}
	return response, nil
}

// TestAnAgentIsRetiredWhileItsTurnsWait retires an agent whose turns wait for an approval. The turn of a sub-agent goes
// on with what its parent gave it; in a turn of its own, nothing starts that a person allowed.
func TestAnAgentIsRetiredWhileItsTurnsWait(t *testing.T) {
	s := newSite(t)
	var paid atomic.Int64
	registry := &tools.Registry{}
	spec := tools.Spec{Name: "pay", Effect: turnkeeper.EffectOnce, Parameters: json.RawMessage(`{"type":"object"}`),
		Approve: policy.Always}
	err := registry.Register(tools.New(spec, func(context.Context, tools.Call, struct{}) (tools.Result, error) {
		paid.Add(1)
		return tools.Result{Text: "paid"}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	s.start(kind{model: echo, scheduler: true, change: func(c *jobs.WorkerConfig) {
		c.Runner = agentturn.New(agentturn.Config{Models: household{}, Tools: registry, Bounds: c.Bounds,
			Budget: &jobs.Spend{Grants: s.Grants}, Rules: &policy.Cache{}})
	}})
	s.register("boss", "---\ndescription: d\nmodel: script/m\nsub_agents: [helper]\n---\nYou are the boss.\n")
	s.register("helper", "---\ndescription: d\nmodel: script/m\nlane: conversation\ntools: [pay]\n---\nYou help.\n")
	const open = "select count(*) from turnkeeper.asks where closed_at is null"
	given, own := s.enqueue("boss", "", "pay"), s.enqueue("helper", "own", "pay")
	s.await("(" + open + ") = 2 and not exists (select from turnkeeper.turns where state = 'running')")
	if err := s.RetireAgent(t.Context(), "helper"); err != nil {
		t.Fatal(err)
	}
	all, err := s.ListAsks(t.Context(), operate.AskFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range all {
		if _, err := s.AnswerAsk(t.Context(), ask.ID, asks.Answer{Decision: asks.Approved, By: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if reply := s.reply(given); reply.Body != "paid" || paid.Load() != 1 {
		t.Errorf("the parent replies %q; paid %d times", reply.Body, paid.Load())
	}
	const denied = "denied: a person allowed this call, but the agent was retired since. Nothing was run."
	if reply := s.reply(own); reply.Body != denied || paid.Load() != 1 {
		t.Errorf("the agent's own turn replies %q; paid %d times", reply.Body, paid.Load())
	}
}
