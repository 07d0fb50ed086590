package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/config"
	"turnkeeper/internal/golden"
)

// A probed provider answers the requests of a probe in order, and writes them down.
type probed struct {
	answers []any // inference.Response or error
	asked   []string
	timely  bool // each request had a deadline
}

func (p *probed) Generate(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	_, p.timely = ctx.Deadline()
	onDelta(inference.Delta{})
	text, err := json.Marshal(req)
	if err != nil {
		return inference.Response{}, err
	}
	p.asked = append(p.asked, string(text))
	next := p.answers[min(len(p.asked), len(p.answers))-1]
	if err, failed := next.(error); failed {
		return inference.Response{}, err
	}
	return next.(inference.Response), nil
}

func probeCall(id string, a, b int) inference.Call {
	return inference.Call{ID: id, Name: probeTool, Arguments: fmt.Sprintf(`{"a":%d,"b":%d}`, a, b)}
}

func probeAnswer(finish, text string, calls ...inference.Call) inference.Response {
	return inference.Response{
		Text: text, Calls: calls, FinishReason: finish, Raw: []byte(`{"role":"assistant"}`), Provider: "maker",
		Usage: turnkeeper.Usage{InputTokens: 7, OutputTokens: 4},
	}
}

// TestEveryFindingOfAProbe records what a probe asks a model, and says of each kind of answer.
func TestEveryFindingOfAProbe(t *testing.T) {
	t.Parallel()
	one, words := probeAnswer("tool_calls", "", probeCall("a", 2, 3)), probeAnswer("stop", "five")
	two := probeAnswer("tool_calls", "", probeCall("b", 1, 1), probeCall("c", 2, 2))
	change := func(r inference.Response, edit func(*inference.Response)) inference.Response {
		r.Calls = slices.Clone(r.Calls)
		edit(&r)
		return r
	}
	failure := func(class inference.Class, code, detail string) error {
		return &inference.Error{Class: class, Code: code, Detail: detail, Provider: "maker", Model: "m"}
	}
	var written strings.Builder
	for _, c := range []struct {
		title   string
		answers []any
	}{
		{"as it should be", []any{one, words, two}},
		{"text", []any{probeAnswer("stop", strings.Repeat("It is 5. ", 20))}},
		{"two calls for one", []any{probeAnswer("tool_calls", "", probeCall("a", 2, 3), probeCall("b", 3, 4)), words,
			two}},
		{"another tool", []any{probeAnswer("tool_calls", "", inference.Call{ID: "a", Name: strings.Repeat("x", 70),
			Arguments: `{"a":2,"b":3}`})}},
		{"no JSON", []any{probeAnswer("tool_calls", "", inference.Call{ID: "a", Name: probeTool,
			Arguments: `{"a":2,`})}},
		{"one argument", []any{probeAnswer("tool_calls", "", inference.Call{ID: "a", Name: probeTool,
			Arguments: `{"a":2}`})}},
		{"the other argument", []any{probeAnswer("tool_calls", "", inference.Call{ID: "a", Name: probeTool,
			Arguments: `{"b":3}`})}},
		{"a text for a number", []any{probeAnswer("tool_calls", "", inference.Call{ID: "a", Name: probeTool,
			Arguments: `{"a":"2","b":3}`})}},
		{"swapped", []any{probeAnswer("tool_calls", "", probeCall("a", 3, 2))}},
		{"no ids", []any{probeAnswer("tool_calls", "", probeCall("", 2, 3)), words, probeAnswer("tool_calls", "",
			probeCall("", 1, 1), probeCall("", 2, 2))}},
		{"one id for two", []any{one, words, probeAnswer("tool_calls", "", probeCall("b", 1, 1),
			probeCall("b", 2, 2))}},
		{"one for two", []any{one, words, one}},
		{"three for two", []any{one, words, change(two, func(r *inference.Response) {
			r.Calls = append(r.Calls, probeCall("d", 9, 9))
		})}},
		{"two wrong ones", []any{one, words, probeAnswer("tool_calls", "", probeCall("b", 2, 2),
			probeCall("c", 1, 1))}},
		{"a call again", []any{one, one, two}},
		{"no finish_reason", []any{change(one, func(r *inference.Response) { r.FinishReason = "" }), words, two}},
		{"a strange one", []any{one, probeAnswer("banana", "five"), two}},
		{"a cut one", []any{one, probeAnswer("length", "fi"), two}},
		{"stop with calls", []any{change(one, func(r *inference.Response) { r.FinishReason = "stop" }), words, two}},
		{"function_call", []any{change(one, func(r *inference.Response) {
			r.FinishReason = "function_call"
		}), words, two}},
		{"no usage", []any{change(one, func(r *inference.Response) { r.Usage = turnkeeper.Usage{} }), words, two}},
		{"doubt", []any{one, words, change(two, func(r *inference.Response) { r.Doubt = "a piece without a name" })}},
		{"tags", []any{one, change(words, func(r *inference.Response) { r.Reasoning = "hm" }), two}},
		{"reasoning", []any{change(one, func(r *inference.Response) {
			r.Reasoning, r.Raw = "hm", []byte(`{"reasoning":"hm"}`)
		}), words, two}},
		{"thinking", []any{change(one, func(r *inference.Response) {
			r.Reasoning, r.Raw = "hm", []byte(`{"thinking":"hm"}`)
		}), words, two}},
		{"demands reasoning", []any{one, &inference.Error{Class: inference.ClassInvalid, Detail: "needs some",
			Record: inference.RecordLacksReasoning}, words, two}},
		{"always demands it", []any{one, &inference.Error{Class: inference.ClassInvalid, Detail: "needs some",
			Record: inference.RecordLacksReasoning}}},
		{"no answer", []any{errors.New("it took too long")}},
		{"fails at the second", []any{one, errors.New("it took too long"), two}},
		{"fails at the third", []any{one, words, errors.New("it took too long")}},
		{"markup", []any{failure(inference.ClassBadOutput, inference.CodeMarkup, "use --tool-call-parser hermes")}},
		{"bad output", []any{failure(inference.ClassBadOutput, "", "nothing")}},
		{"auth", []any{failure(inference.ClassAuth, "", "no key")}},
		{"not found", []any{failure(inference.ClassNotFound, "", "no model")}},
		{"invalid", []any{failure(inference.ClassInvalid, "", "no tools")}},
		{"overloaded", []any{failure(inference.ClassOverloaded, "", "later")}},
		{"too long", []any{failure(inference.ClassContextOverflow, "", "shorter")}},
	} {
		provider := &probed{answers: c.answers}
		probe := &modelProbe{provider: provider, model: "m", name: "probe maker/m"}
		probe.run(t.Context())
		if !provider.timely {
			t.Errorf("%s: a request has no deadline", c.title)
		}
		fmt.Fprintf(&written, "%s: %d requests\n", c.title, len(provider.asked))
		for _, finding := range probe.findings {
			fmt.Fprintf(&written, "  %s %s: %s\n    advice: %s\n", finding.Name, finding.Verdict, finding.Found,
				finding.Advice)
		}
		switch c.title {
		case "as it should be", "two calls for one", "no ids", "demands reasoning":
			for _, request := range provider.asked {
				fmt.Fprintf(&written, "    request %s\n", request)
			}
		}
	}
	golden.File(t, filepath.Join("testdata", "probes.txt"), written.String())
}

// TestWhichModelsAreProbed checks that without names all models of agents are probed, but not the demo, and each once.
func TestWhichModelsAreProbed(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.AgentsDir, cfg.DefaultModel = t.TempDir(), "away/default"
	for name, text := range map[string]string{
		"a.md":      "---\nmodel: away/a\nfallback_models: [demo/script, away/b]\n---\nHi.\n",
		"b.md":      "---\nmodel: away/b\nextraction_model: away/a\n---\nHi.\n",
		"broken.md": "---\nmodel: away/c\nlane: x\n---\nHi.\n", "none.md": "Hi.\n",
	} {
		if err := os.WriteFile(filepath.Join(cfg.AgentsDir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, names := range map[string][]string{
		"probe away/a, probe away/b, probe away/c, probe away/default": nil, "probe away/z, probe demo/script": {
			"away/z", "demo/script"},
	} {
		findings, err := ProbeModels(t.Context(), cfg, names, zap.NewNop())
		var got []string
		for _, f := range findings {
			got = append(got, f.Name)
			if f.Verdict != ProbeFail || f.Name != "probe demo/script" && !strings.Contains(f.Found,
				`needs the provider "away", which is not configured`) {
				t.Errorf("%+v", f)
			}
		}
		if err != nil || strings.Join(got, ", ") != want {
			t.Errorf("%q are probed, want %s; %v", got, want, err)
		}
	}
}
