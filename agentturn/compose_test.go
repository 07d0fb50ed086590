package agentturn_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/tools"
)

// past returns an earlier turn with one call and then a text.
func past(id turnkeeper.TurnID, body, wireID, text, reply string) turnkeeper.Past {
	p := turnkeeper.Past{TurnID: id, Body: body, Reply: reply, Rounds: []turnkeeper.Round{{
		Number: 1, Provider: "main", Text: "hm", Calls: []turnkeeper.ToolCall{{
			Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, WireID: wireID, Name: "look", Arguments: `{}`,
			State: turnkeeper.CallSucceeded, Shown: "seen " + body,
		}},
	}}}
	if text != "" {
		p.Rounds = append(p.Rounds, turnkeeper.Round{Number: 2, Provider: "main", Text: text, Raw: []byte(`{"content":"raw"}`)})
	}
	return p
}

func TestConversation(t *testing.T) {
	look := func(id string) []inference.Call { return []inference.Call{{ID: id, Name: "look", Arguments: `{}`}} }
	synctest.Test(t, func(t *testing.T) {
		b := newEnv(t, inferStep(inference.Response{Calls: look("c1")}), says("done")).with(read("look"))
		b.store.history = []turnkeeper.Past{
			past(1, "one", "c1", "first", "first"),
			past(2, "two", "c1", "", "Tool results: 1 succeeded, 0 failed."),
			past(3, "three", "c3", "quiet", ""),
			{TurnID: 4, Body: "four", Reply: "no tools"},
		}
		b.run(t.Context())
		const user, assistant, tool = inference.RoleUser, inference.RoleAssistant, inference.RoleTool
		raw := json.RawMessage(`{"content":"raw"}`)
		want := []inference.Message{
			{Role: user, Text: "one"},
			{Role: assistant, Text: "hm", Calls: look("turn-1-round-1-tool-1"), RawProvider: "main"},
			{Role: tool, CallID: "turn-1-round-1-tool-1", Tool: "look", Text: "seen one"},
			{Role: assistant, Text: "first", Raw: raw, RawProvider: "main"},
			{Role: user, Text: "two"},
			{Role: assistant, Text: "hm", Calls: look("turn-2-round-1-tool-1"), RawProvider: "main"},
			{Role: tool, CallID: "turn-2-round-1-tool-1", Tool: "look", Text: "seen two"},
			{Role: assistant, Text: "Tool results: 1 succeeded, 0 failed."},
			{Role: user, Text: "three"},
			{Role: assistant, Text: "hm", Calls: look("c3"), RawProvider: "main"},
			{Role: tool, CallID: "c3", Tool: "look", Text: "seen three"},
			{Role: assistant, Text: "quiet", Raw: raw, RawProvider: "main"},
			{Role: user, Text: "four"},
			{Role: assistant, Text: "no tools"},
			{Role: user, Text: "do it"},
			{Role: assistant, Calls: look("c1"), RawProvider: "main"},
			{Role: tool, CallID: "c1", Tool: "look", Text: "look ran"},
		}
		if diff := cmp.Diff(want, b.requests()[1].Messages[1:]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWindowOfARequest(t *testing.T) {
	long := strings.Repeat("a long word ", 400) // about 1500 tokens
	say := func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{Text: long}, nil }
	synctest.Test(t, func(t *testing.T) {
		b := newEnv(t, asks("look", `look {"n":2}`), asks(`look {"n":3}`), says("done")).with(read("look").does(say))
		b.def.ContextWindow, b.def.MaxOutputTokens = 5000, 500
		b.store.history = []turnkeeper.Past{{TurnID: 1, Body: "old", Reply: long}, {TurnID: 2, Body: "new", Reply: "short"}}
		if got := b.run(t.Context()); got.State != turnkeeper.TurnSucceeded {
			t.Fatalf("%+v", got)
		}
		requests := b.requests()
		bodies := func(r inference.Request) (bodies []string) {
			for _, m := range r.Messages {
				if m.Role == inference.RoleUser && !strings.HasPrefix(m.Text, "# ") {
					bodies = append(bodies, m.Text)
				}
			}
			return bodies
		}
		if diff := cmp.Diff([]string{"old", "new", "do it"}, bodies(requests[0])); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"new", "do it"}, bodies(requests[1])); diff != "" {
			t.Error(diff)
		}
		dropped := "[result of look dropped to fit the context window]"
		if got := results(requests[2]); !slices.Equal(got, []string{dropped, long, long}) {
			t.Errorf("results of %d, %d and %d characters", len(got[0]), len(got[1]), len(got[2]))
		}
		if requests[2].MaxOutputTokens != 500 {
			t.Errorf("%d tokens for the answer", requests[2].MaxOutputTokens)
		}
	})
	t.Run("a message that is too long is not sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newEnv(t, says("never asked"))
			b.def.ContextWindow = 1000
			b.store.message.Body = long
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || got.ErrorClass != "context_overflow" ||
				!strings.Contains(got.Error, "context too long") || len(b.requests()) != 0 {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("a turn that grows too long fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newEnv(t, inferencetest.Answer(asking(long, "look")), says("never asked")).with(read("look"))
			b.def.ContextWindow = 1500
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || got.StopReason != turnkeeper.StopInferenceError ||
				got.Retry || got.ErrorClass != "context_overflow" || len(b.requests()) != 1 {
				t.Errorf("%+v", got)
			}
		})
	})
}

// Tool definitions count: tools that fill the window leave no room.
func TestToolsCountAgainstTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := read("big")
		big.spec.Description = strings.Repeat("what it does ", 400)
		b := newEnv(t, says("never asked")).with(big)
		b.def.ContextWindow = 2000
		if got := b.run(t.Context()); got.ErrorClass != "context_overflow" {
			t.Errorf("%+v", got)
		}
	})
}

// Servers refuse tool messages if no tools are declared.
func TestAgentWithoutTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newEnv(t, asks("search"), says("I cannot search."))
		b.store.history = []turnkeeper.Past{past(1, "one", "c1", "first", "first")}
		if got := b.run(t.Context()); got.State != turnkeeper.TurnSucceeded {
			t.Errorf("%+v", got)
		}
		want := []inference.Message{
			{Role: inference.RoleUser, Text: "one"},
			{Role: inference.RoleAssistant, Text: "hm"},
			{Role: inference.RoleUser, Text: "# Tool results\n\nEach line of a result begins with \"> \".\n\nlook:\n> seen one"},
			{Role: inference.RoleAssistant, Text: "first", Raw: json.RawMessage(`{"content":"raw"}`), RawProvider: "main"},
			{Role: inference.RoleUser, Text: "do it"},
			{Role: inference.RoleAssistant, Text: "(asked for tools)"},
			{Role: inference.RoleUser, Text: "# Tool results\n\nEach line of a result begins with \"> \".\n\nsearch:\n> tool not found: search\n> There are no tools. Nothing was run."},
		}
		if diff := cmp.Diff(want, b.requests()[1].Messages[1:]); diff != "" {
			t.Error(diff)
		}
	})
}
