package messages_test

import (
	"encoding/json"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
)

// TestTheLibraryReadsWhatIsSent decodes a request with the library's type, and encodes what it read.
func TestTheLibraryReadsWhatIsSent(t *testing.T) {
	s := whole(200, `{"content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}`)
	req := inference.Request{Model: "claude-x", MaxOutputTokens: 100, Temperature: new(1.0), User: "turn-7",
		Tools: []inference.ToolDefinition{{Name: "clock", Description: "Tells the time.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"zone":{"type":"string"}},"required":["zone"]}`)}},
		Messages: []inference.Message{
			{Role: inference.RoleSystem, Text: "Be brief."}, {Role: inference.RoleUser, Text: "hi"},
			{Role: inference.RoleAssistant, RawProvider: "p",
				Calls: []inference.Call{{ID: "toolu_1", Name: "clock", Arguments: `{"zone":"UTC"}`}},
				Raw: json.RawMessage(`[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"d"},
					{"type":"text","text":"Wait."},{"type":"tool_use","id":"toolu_1","name":"clock","input":{"zone":"UTC"}}]`)},
			{Role: inference.RoleTool, CallID: "toolu_1", Text: "noon"}, {Role: inference.RoleUser, Text: "A note."},
			{Role: inference.RoleAssistant, Text: "It is noon."}, {Role: inference.RoleUser, Text: "Thanks."},
		}}
	profile := openai.Profile{NoStream: true, Extra: map[string]json.RawMessage{
		"thinking": json.RawMessage(`{"type":"adaptive"}`), "output_config": json.RawMessage(`{"effort":"low"}`)}}
	if _, err := s.client(t, profile).Generate(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	var params sdk.MessageNewParams
	if err := json.Unmarshal(s.sent, &params); err != nil {
		t.Fatal(err)
	}
	read, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	// The library writes the content of a result as a list of blocks.
	sent, got := decoded(t, s.sent), decoded(t, read)
	delete(sent.(map[string]any), "temperature") // the library lacks it, as newer models refuse it
	if diff := cmp.Diff(listed(sent), listed(got)); diff != "" {
		t.Errorf("-sent +read:\n%s", diff)
	}
	if params.MaxTokens != 100 || len(params.Messages) != 5 || len(params.System) != 1 ||
		params.Messages[2].OfUser.Content[0].OfToolResult.ToolUseID != "toolu_1" ||
		params.Messages[1].OfAssistant.Content[0].OfThinking.Signature != "s" {
		t.Errorf("the library read %s", read)
	}
}

// listed returns a body with the contents of results as lists.
func listed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["content"].(string); ok && v["type"] == "tool_result" {
			v["content"] = []any{map[string]any{"type": "text", "text": text}}
		}
		for name := range v {
			v[name] = listed(v[name])
		}
	case []any:
		for i := range v {
			v[i] = listed(v[i])
		}
	}
	return v
}
