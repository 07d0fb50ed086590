package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/jobs"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// An edited is a worker's models and tools. It records what each message's turn is given.
type edited struct {
	mu   sync.Mutex
	used map[string]string // by message: prompt, model and tools of its first request
	runs map[string]int    // by message: runs of the tool
}

func (e *edited) Find(name string) (inference.Provider, agentturn.ModelInfo, error) {
	_, model, _ := strings.Cut(name, "/")
	return e, agentturn.ModelInfo{Provider: "script", Model: model}, nil
}

// Generate calls the tool "one" in the first round.
func (e *edited) Generate(_ context.Context, r inference.Request, _ func(inference.Delta)) (inference.Response, error) {
	response := inference.Response{Provider: "script", Model: r.Model, Text: "done", FinishReason: "stop"}
	last := r.Messages[len(r.Messages)-1]
	if last.Role != inference.RoleUser {
		return response, nil
	}
	prompt, _, _ := strings.Cut(r.Messages[0].Text, "\n")
	names := []string{}
	for _, tool := range r.Tools {
		if tool.Name == "one" || tool.Name == "two" {
			names = append(names, tool.Name)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used[last.Text] = fmt.Sprint(prompt, " ", r.Model, " ", names)
	response.Text, response.FinishReason = "", "tool_calls"
	response.Calls = []inference.Call{{ID: "a", Name: "one", Arguments: fmt.Sprintf(`{"for":%q}`, last.Text)}}
	return response, nil
}

func (e *edited) registry(t *testing.T) *tools.Registry {
	registry := &tools.Registry{}
	for _, name := range []string{"one", "two"} {
		spec := tools.Spec{Name: name, Effect: turnkeeper.EffectOnce, Parameters: json.RawMessage(`{"type":"object"}`)}
		err := registry.Register(tools.New(spec, func(_ context.Context, _ tools.Call,
			args struct{ For string }) (tools.Result, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.runs[args.For]++
			return tools.Result{Text: "ok"}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	return registry
}

// given sends a message, and returns what its turn was given and how it ended.
func (e *edited) given(s *site, agent string) string {
	s.t.Helper()
	body := fmt.Sprintf("message %d", one[int](s, "select count(*) from turnkeeper.messages"))
	id := s.enqueue(agent, body, body)
	s.await(`exists (select from turnkeeper.turns t where t.message_id = $1 and (t.ended_at is not null
		or t.state = 'waiting' and exists (select from turnkeeper.asks where turn_id = t.id)))`, id)
	turn := s.view(id).Turn
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprintf("%s, %d runs, %s %s", e.used[body], e.runs[body], turn.State, turn.StopReason)
}

// The next turn of an agent has what its file says now: after an edit, after another one, and after the first is
// undone. Another agent, whose file is the same as the first version, keeps what it has.
func TestAnEditTakesEffectAtOnce(t *testing.T) {
	s := newSite(t)
	e := &edited{used: map[string]string{}, runs: map[string]int{}}
	s.start(kind{model: echo, scheduler: true, change: func(c *jobs.WorkerConfig) {
		c.Runner = agentturn.New(agentturn.Config{
			Models: e, Tools: e.registry(t), Bounds: c.Bounds, Budget: &jobs.Spend{Grants: s.Grants},
			Rules: &policy.Cache{},
		})
	}})
	file := func(prompt string, settings ...string) string {
		return "---\ndescription: d\nlane: conversation\n" + strings.Join(settings, "\n") + "\n---\n" + prompt + "\n"
	}
	const model, only = "model: script/m", "tools: [one]"
	first := file("You are Ann.", model, only)
	s.register("twin", first)
	for _, edit := range []struct{ name, file, want string }{
		{"new", first, "You are Ann. m [one], 1 runs, succeeded none"},
		{"another prompt", file("You are Bob.", model, only), "You are Bob. m [one], 1 runs, succeeded none"},
		{"another model", file("You are Bob.", "model: script/n", only),
			"You are Bob. n [one], 1 runs, succeeded none"},
		{"a tool more", file("You are Bob.", model, "tools: [one, two]"),
			"You are Bob. m [one two], 1 runs, succeeded none"},
		{"a tool less", file("You are Bob.", model, "tools: [two]"), "You are Bob. m [two], 0 runs, succeeded none"},
		{"a rule", file("You are Bob.", model, only, "approve: {one: always}"),
			"You are Bob. m [one], 0 runs, waiting "},
		{"a rule less", file("You are Bob.", model, only), "You are Bob. m [one], 1 runs, succeeded none"},
		{"a limit", file("You are Bob.", model, only, "max_tool_calls: 0"),
			"You are Bob. m [one], 0 runs, degraded max_tool_calls"},
		{"a budget", file("You are Bob.", model, only, "budget: {turn_calls: 1}"),
			"You are Bob. m [one], 1 runs, degraded budget"},
		{"undone", first, "You are Ann. m [one], 1 runs, succeeded none"},
	} {
		s.register("edited", edit.file)
		for _, agent := range []string{"edited", "twin"} {
			want := edit.want
			if agent == "twin" {
				want = "You are Ann. m [one], 1 runs, succeeded none"
			}
			if got := e.given(s, agent); got != want {
				t.Errorf("%s: the turn of %s was given %q, want %q", edit.name, agent, got, want)
			}
		}
	}
}
