package tests_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/outputs"
)

// An accounted turn is one with what its model calls took.
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

// A model asks for what it wants to know of a result that is too long to be
// shown, and gets it with its place; a smaller model has found it, and what that
// took is the turn's. Asked again, nobody searches.
func TestAModelExtracts(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.write("turnkeeper.yaml", fmt.Sprintf("default_model: test/scripted\nextraction_model: test/searcher\nmodels:\n  test/searcher:\n    context_window: 2048\n"+
		"providers:\n  test:\n    base_url: %s\n    api_key_env: TEST_API_KEY\n", h.address))
	h.agent("clerk", marks, "max_tool_result_chars: 2000")
	h.agent("thrifty", marks, "max_tool_result_chars: 2000", "extraction_model: demo/script")
	const fact = "The password of the 日本 office is \"<Kirsche>\"."
	var lines strings.Builder
	for i := range 400 {
		fmt.Fprintf(&lines, "Line %d says nothing, 何も.\n", i)
		if i == 333 {
			fmt.Fprintln(&lines, fact)
		}
	}
	whole := lines.String()
	h.ledger.answer("long", whole)
	h.model.Then(func(r recorded) reply {
		if r.Chat().Model == "searcher" {
			return searcher(t, r, fact)
		}
		return rounds(callOnce("mark_none", "long"), calls(inferencetest.Call{
			ID: "look", Name: "get_tool_output", Arguments: `{"id":"call_long","mode":"extract","query":"password of the office"}`,
		}), text("It is Kirsche."))(r)
	})
	h.startWorker()

	for _, c := range []struct {
		name, agent string
		searched    bool // by the searcher, and paid for
	}{{"the first time", "clerk", true}, {"the second time", "clerk", false}, {"by the script", "thrifty", false}} {
		before := len(h.model.Requests())
		turn := h.turnOf(h.enqueue(c.agent, "What is the password?"))
		h.ended(turn, "succeeded", "none", 3)
		h.replied(turn, "It is Kirsche.")
		requests := h.model.Requests()[before:]
		if searched := len(requests) > 3; searched != c.searched {
			t.Errorf("%s: the models were asked %d times", c.name, len(requests))
		}
		told := requests[len(requests)-1].Chat().Messages
		var x outputs.Extraction
		if err := json.Unmarshal([]byte(told[len(told)-1].Text()), &x); err != nil {
			t.Fatalf("%s: the model is shown %q", c.name, told[len(told)-1].Text())
		}
		at := strings.Index(whole, fact)
		if len(x.Snippets) != 1 || x.Snippets[0].Text != fact || x.Snippets[0].StartByte != int64(at) || x.Snippets[0].EndByte != int64(at+len(fact)) ||
			x.Snippets[0].StartChar != int64(utf8.RuneCountInString(whole[:at])) || x.SourceSizeBytes != int64(len(whole)) ||
			x.SourceHash != query[string](h, "select sha256 from outputs limit 1") || x.ChunksSearched != x.ChunksTotal {
			t.Errorf("%s: %+v", c.name, x)
		}
		if c.searched && (x.ChunksTotal < 5 || len(requests) != 3+x.ChunksTotal) {
			t.Errorf("%d chunks with %d requests", x.ChunksTotal, len(requests))
		}
		h.accountsFor(turn.ID, c.name, c.searched || c.agent == "thrifty")
	}
	if n := query[int](h, "select count(*) from extractions"); n != 2 {
		t.Errorf("%d extractions are kept", n)
	}
	h.ledger.ran("long", 3)
}

// accountsFor checks what turnctl says that a turn took.
func (h *house) accountsFor(turn int64, name string, extracted bool) {
	h.t.Helper()
	shown := turnctl[accounted](h, "show", fmt.Sprint(turn))
	var sum tokens
	for _, r := range shown.Rounds {
		sum.Input, sum.Output = sum.Input+r.Usage.Input, sum.Output+r.Usage.Output
		for _, c := range r.Calls {
			if (c.Usage != nil) != (c.WireID == "look" && extracted) {
				h.t.Errorf("%s: the call %s took %+v", name, c.WireID, c.Usage)
			}
			if c.Usage != nil {
				sum.Input, sum.Output = sum.Input+c.Usage.Input, sum.Output+c.Usage.Output
			}
		}
	}
	if shown.Tokens != sum || len(shown.Outputs) != 1 || shown.Outputs[0].Retrieved != 1 {
		h.t.Errorf("%s: the turn took %+v, its parts %+v; outputs %+v", name, shown.Tokens, sum, shown.Outputs)
	}
}

// searcher answers a search with the fact where it is there, and with what is
// nowhere.
func searcher(t *testing.T, r recorded, fact string) reply {
	messages := r.Chat().Messages
	_, data, ok := outputs.ReadSearchPrompt(outputs.Prompt{System: messages[0].Text(), User: messages[1].Text()})
	if !ok || len(r.Chat().Tools) > 0 {
		t.Errorf("the searcher is asked %s", r.Body)
	}
	claims := []string{"The password is secret."}
	if strings.Contains(data, fact) {
		claims = append(claims, fact)
	}
	answer, err := json.Marshal(map[string]any{"snippets": claims, "confidence": 0.9})
	if err != nil {
		t.Error(err)
	}
	return text("Sure:\n```json\n" + string(answer) + "\n```")
}
