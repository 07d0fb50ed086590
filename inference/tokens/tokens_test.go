package tokens_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/tokens"
)

func TestWhichModelsAreCountedExactly(t *testing.T) {
	for model, want := range map[string]bool{
		"gpt-4o-mini": true, "openai/gpt-5": true, "openrouter/openai/o3-mini": true, "o1": true, "GPT-4.1": true,
		"gpt-oss:20b": true, "llama3.2": false, "qwen2.5": false, "ollama/o1ive": false,
		"mistral-large": false, "": false,
		"gpt-provider/llama": false,
	} {
		if got := tokens.For(model).Exact(); got != want {
			t.Errorf("For(%q).Exact() is %v", model, got)
		}
	}
}

func TestCounts(t *testing.T) {
	exact, rough := tokens.For("gpt-4o"), tokens.For("llama3")
	type counts struct{ ExactText, ExactJSON, RoughText, RoughJSON int }
	for name, tc := range map[string]struct {
		text string
		want counts
	}{
		"nothing":        {"", counts{0, 0, 0, 0}},
		"words":          {"hello world", counts{2, 2, 4, 4}},
		"an object":      {`{"path":"README.md"}`, counts{6, 6, 7, 8}},
		"one character":  {"a", counts{1, 1, 1, 1}},
		"no ASCII":       {strings.Repeat("é", 32), counts{32, 32, 10, 12}},
		"over 64 KB":     {strings.Repeat("hello world ", 6000), counts{22500, 25715, 22500, 25715}},
		"not quite 64 K": {strings.Repeat(" hello", 10000), counts{10000, 10000, 18750, 21429}},
	} {
		t.Run(name, func(t *testing.T) {
			got := counts{exact.CountText(tc.text), exact.CountJSON(tc.text), rough.CountText(tc.text),
				rough.CountJSON(tc.text)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEveryPartOfARequestCounts(t *testing.T) {
	c := tokens.Counter{}
	plain := inference.Message{Role: inference.RoleAssistant, Text: "0123456789abcdef"}
	if got := c.CountMessage(plain); got != tokens.PerMessage+5 {
		t.Errorf("a plain message counts %d", got)
	}
	withCall := plain
	withCall.Calls = []inference.Call{{ID: "call_1", Name: "clock", Arguments: `{"timezone":"UTC"}`}}
	if got := c.CountMessage(withCall); got != tokens.PerMessage+5+tokens.PerMessage+2+2+7 {
		t.Errorf("a message with a call counts %d", got)
	}
	small := []inference.ToolDefinition{{Name: "clock", Parameters: json.RawMessage(`{"type":"object"}`)}}
	large := []inference.ToolDefinition{{Name: "clock",
		Parameters: json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 280) + `"}`)}}
	if more := c.CountTools(large) - c.CountTools(small); more < 100 || more > 112 {
		t.Errorf("280 characters of schema count %d", more)
	}
	if c.CountTools([]inference.ToolDefinition{{Name: "broken", Parameters: json.RawMessage(`{`)}}) == 0 {
		t.Error("a broken schema counts nothing")
	}
}
