package agentturn_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// past returns an earlier turn with one call followed by a text.
func past(id turnkeeper.TurnID, body, wireID, text, reply string) turnlog.Past {
	p := turnlog.Past{TurnID: id, Body: body, Reply: reply, Rounds: []turnkeeper.Round{{
		Number: 1, Provider: "main", Text: "hm", Calls: []turnkeeper.ToolCall{{
			Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, WireID: wireID, Name: "look", Arguments: `{}`,
			State: turnkeeper.CallSucceeded, Shown: "seen " + body,
		}},
	}}}
	if text != "" {
		p.Rounds = append(p.Rounds, turnkeeper.Round{Number: 2, Provider: "main", Text: text,
			Raw: []byte(`{"content":"raw"}`)})
	}
	return p
}

func TestWindowOfARequest(t *testing.T) {
	long := strings.Repeat("a long word ", 400) // about 1500 tokens
	say := func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{Text: long}, nil }
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("look", `look {"n":2}`), asks(`look {"n":3}`), says("done")).with(read("look").does(say))
		b.def.ContextWindow, b.def.MaxOutputTokens = 5000, 500
		b.store.history = []turnlog.Past{{TurnID: 1, Body: "old", Reply: long}, {TurnID: 2, Body: "new",
			Reply: "short"}}
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
		if got := results(requests[2]); !slices.Equal(got, []string{dropped, dropped, long}) {
			t.Errorf("results of %d, %d and %d characters", len(got[0]), len(got[1]), len(got[2]))
		}
		if requests[2].MaxOutputTokens != 500 {
			t.Errorf("%d tokens for the answer", requests[2].MaxOutputTokens)
		}
	})
	t.Run("a message that is too long is not sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, says("never asked"))
			b.def.ContextWindow = 1000
			b.store.body = long
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || got.ErrorClass != "context_overflow" ||
				!strings.Contains(got.Error, "context too long") || len(b.requests()) != 0 {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("a turn that grows too long after an effect degrades", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, inferencetest.Answer(asking(long, "send")), says("never asked")).with(once("send"))
			b.def.ContextWindow = 1500
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnDegraded || got.StopReason != turnkeeper.StopInferenceError || got.Retry ||
				got.ErrorClass != "context_overflow" ||
				got.Reply != "Tool results: 1 succeeded, 0 failed.\n- send: succeeded" {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("a turn that grows too long fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, inferencetest.Answer(asking(long, "look")), says("never asked")).with(read("look"))
			b.def.ContextWindow = 1500
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || got.StopReason != turnkeeper.StopInferenceError ||
				got.Retry || got.ErrorClass != "context_overflow" || len(b.requests()) != 1 {
				t.Errorf("%+v", got)
			}
		})
	})
}

// TestWhoseWindow checks which context window a request to each model of a chain is built for. Other models of the
// worker, such as the one that searches results, do not matter.
func TestWhoseWindow(t *testing.T) {
	both := map[string]int{"main/model": 9000, "other/one": 7000}
	for name, c := range map[string]struct {
		own, set       string // the agent's first model, in its file or in the settings
		window         int    // context_window of the agent
		known          map[string]int
		first, further int // the windows of the first model, and of the one after it
	}{
		"nothing is known":          {own: "main/model", first: 32768, further: 32768},
		"both are known":            {own: "main/model", known: both, first: 9000, further: 7000},
		"the agent's is of its own": {own: "main/model", window: 5000, known: both, first: 5000, further: 7000},
		"of the default too":        {set: "main/model", window: 5000, known: both, first: 5000, further: 7000},
		"in place of an unknown":    {set: "main/model", window: 5000, first: 5000, further: 5000},
		"the file's model is first": {own: "main/model", set: "other/one", window: 5000, known: both, first: 5000,
			further: 7000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("look"), fails(inference.ClassAuth)).with(read("look"))
				b.def.Model, b.def.FallbackModels, b.def.ContextWindow, b.extractor = c.own, []string{"other/one"},
					c.window, "other/one"
				b.config = func(cfg *agentturn.Config) { cfg.DefaultModel = c.set }
				b.models["other/one"], b.windows = inferencetest.NewScript(says("done")), c.known
				b.run(t.Context())
				if all := b.recipes(); len(all) != 2 || all[0].Window.Size != c.first ||
					all[1].Window.Size != c.further {
					t.Errorf("requests for windows of %d and %d", all[0].Window.Size, all[1].Window.Size)
				}
			})
		})
	}
}
