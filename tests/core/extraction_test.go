package core_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/outputs"
	"turnkeeper/tests/internal/env"
)

// An accounted turn is a turn with the token usage of its calls.
type accounted struct {
	Tokens tokens `json:"tokens"`
	Rounds []struct {
		Usage tokens `json:"usage"`
		Calls []struct {
			WireID string  `json:"tool_call_id"`
			Usage  *tokens `json:"usage"`
		} `json:"tool_calls"`
	} `json:"rounds"`
	Outputs []struct {
		Retrieved int `json:"retrieved"`
	} `json:"outputs"`
}

type tokens struct {
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
}

// A model queries a result that is too long to be shown and gets the passage with its position. A smaller
// model extracts it, and its usage counts for the turn. A repeated query is answered from the cache.
func TestAModelExtracts(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	whole := setUpSearch(e)
	e.WriteAgent("clerk", env.MarkerTools, "max_tool_result_chars: 2000",
		"budget: {turn_tokens: 1000000, turn_calls: 100}")
	e.WriteAgent("thrifty", env.MarkerTools, "max_tool_result_chars: 2000", "extraction_model: demo/script")
	e.StartWorker()

	for _, c := range []struct {
		name, agent string
		searched    bool // by the smaller model, with usage
	}{{"the first time", "clerk", true}, {"the second time", "clerk", false}, {"by the script", "thrifty", false}} {
		before := len(e.Model.Requests())
		turn := e.TurnOf(e.Enqueue(c.agent, "What is the password?"))
		e.WantEnd(turn, "succeeded", "none", 3)
		e.WantReply(turn, "It is Kirsche.")
		requests := e.Model.Requests()[before:]
		if searched := len(requests) > 3; searched != c.searched {
			t.Errorf("%s: the models got %d requests", c.name, len(requests))
		}
		messages := requests[len(requests)-1].Chat().Messages
		var x outputs.Extraction
		if err := json.Unmarshal([]byte(messages[len(messages)-1].Text()), &x); err != nil {
			t.Fatalf("%s: the model gets %q", c.name, messages[len(messages)-1].Text())
		}
		at := strings.Index(whole, fact)
		if len(x.Snippets) != 1 || x.Snippets[0].Text != fact || x.Snippets[0].StartByte != int64(at) ||
			x.Snippets[0].EndByte != int64(at+len(fact)) ||
			x.Snippets[0].StartChar != int64(utf8.RuneCountInString(whole[:at])) ||
			x.SourceSizeBytes != int64(len(whole)) ||
			x.SourceHash != env.Query[string](e, "select sha256 from outputs limit 1") ||
			x.ChunksSearched != x.ChunksTotal {
			t.Errorf("%s: %+v", c.name, x)
		}
		if c.searched && (x.ChunksTotal < 5 || len(requests) != 3+x.ChunksTotal) {
			t.Errorf("%d chunks with %d requests", x.ChunksTotal, len(requests))
		}
		wantUsage(e, turn.ID, c.name, c.searched || c.agent == "thrifty")
	}
	if n := env.Query[int](e, "select count(*) from extractions"); n != 2 {
		t.Errorf("%d extractions are kept", n)
	}
	e.Ledger.WantRuns("long", 3)
}

const fact = "The password of the 日本 office is \"<Kirsche>\"."

// setUpSearch configures a model that queries a long result, and a smaller model that extracts. It returns the
// result.
func setUpSearch(e *env.Env) string {
	e.WriteFile("turnkeeper.yaml",
		fmt.Sprintf(
			"default_model: test/scripted\nextraction_model: test/searcher\nmodels:\n  test/searcher:\n    context_window: 2048\n"+
				"providers:\n  test:\n    base_url: %s\n    api_key_env: TEST_API_KEY\n", e.ModelURL))
	var lines strings.Builder
	for i := range 400 {
		fmt.Fprintf(&lines, "Line %d says nothing, 何も.\n", i)
		if i == 333 {
			fmt.Fprintln(&lines, fact)
		}
	}
	e.Ledger.SetAnswer("long", lines.String())
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if r.Chat().Model == "searcher" {
			return searcher(e.T, r, fact)
		}
		return env.Rounds(env.MarkerReply("mark_none", "long"), inferencetest.Calls(inferencetest.Call{
			ID: "look", Name: "get_tool_output",
			Arguments: `{"id":"call_long","mode":"extract","query":"password of the office"}`,
		}), inferencetest.Text("It is Kirsche."))(r)
	})
	return lines.String()
}

// If the budget is used up before the extraction, the call succeeds with a notice and the beginning and end of
// the result, and the turn ends with stop reason budget.
func TestAnExtractionThatTheBudgetStops(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	whole := []rune(setUpSearch(e))
	e.WriteAgent("poor", env.MarkerTools, "max_tool_result_chars: 2000", "budget: {turn_calls: 2}")
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("poor", "What is the password?"))
	e.WantEnd(turn, "degraded", "budget", 2)
	e.WantRequests(2)
	shown := turn.CallsByWireID()["look"]
	const half = 889 // half of the cap without the notice
	want := fmt.Sprintf(
		"[extraction failed: the budget allows no more model calls. The first %d and the last %d of %d chars follow; "+
			`use get_tool_output("call_long", mode) with mode "slice" to read more]`+
			"\n\n%s\n\n[... %d chars omitted ...]\n\n%s",
		half, half, len(whole), string(whole[:half]), len(whole)-2*half, string(whole[len(whole)-half:]))
	if shown.State != "succeeded" || shown.Result != want {
		t.Errorf("the call %s, and the model gets\n%s\nnot\n%s", shown.State, shown.Result, want)
	}
	if n := env.Query[int](e, "select calls from spend where scope = 'turn:' || $1::text",
		fmt.Sprint(turn.ID)); n != 2 {
		t.Errorf("%d calls are charged", n)
	}
}

// wantUsage checks the usage in the output of turnctl.
func wantUsage(e *env.Env, turn int64, name string, extracted bool) {
	e.T.Helper()
	shown := env.Turnctl[accounted](e, "show", fmt.Sprint(turn))
	var sum tokens
	for _, r := range shown.Rounds {
		sum.Input, sum.Output = sum.Input+r.Usage.Input, sum.Output+r.Usage.Output
		for _, c := range r.Calls {
			if (c.Usage != nil) != (c.WireID == "look" && extracted) {
				e.T.Errorf("%s: the call %s took %+v", name, c.WireID, c.Usage)
			}
			if c.Usage != nil {
				sum.Input, sum.Output = sum.Input+c.Usage.Input, sum.Output+c.Usage.Output
			}
		}
	}
	paid := env.Query[*int64](e, "select sum(tokens)::bigint from spend where scope = 'turn:' || $1::text",
		fmt.Sprint(turn))
	if paid != nil && *paid != int64(sum.Input+sum.Output) { // agents without a budget have no account
		e.T.Errorf("%s: %d tokens are charged, %+v were used", name, *paid, sum)
	}
	if shown.Tokens != sum || len(shown.Outputs) != 1 || shown.Outputs[0].Retrieved != 1 {
		e.T.Errorf("%s: the turn took %+v, its parts %+v; outputs %+v", name, shown.Tokens, sum, shown.Outputs)
	}
}

// searcher answers an extraction request with the fact, or with none if the text does not have it.
func searcher(t testing.TB, r inferencetest.Recorded, fact string) inferencetest.Reply {
	messages := r.Chat().Messages
	_, data, ok := outputs.ReadSearchPrompt(outputs.Prompt{System: messages[0].Text(), User: messages[1].Text()})
	if !ok || len(r.Chat().Tools) > 0 {
		t.Errorf("the extraction request is %s", r.Body)
	}
	claims := []string{"The password is secret."}
	if strings.Contains(data, fact) {
		claims = append(claims, fact)
	}
	answer, err := json.Marshal(map[string]any{"snippets": claims, "confidence": 0.9})
	if err != nil {
		t.Error(err)
	}
	return inferencetest.Text("Sure:\n```json\n" + string(answer) + "\n```")
}
