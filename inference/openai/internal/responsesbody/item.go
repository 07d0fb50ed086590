package responsesbody

import (
	"encoding/json"
	"slices"
	"strings"

	"turnkeeper/inference/openai/internal/loose"
)

// The types of items that are not only sent back.
const (
	TypeMessage   = "message"
	TypeCall      = "function_call"
	TypeResult    = "function_call_output"
	TypeReasoning = "reasoning"
)

// An Item is an entry of an answer's output.
type Item struct {
	Type    string
	Raw     json.RawMessage // as it was received
	Members map[string]json.RawMessage
}

// ReadItem decodes an item. ok is false if it is not an object with a type. Some servers send messages without it.
func ReadItem(raw json.RawMessage) (i Item, ok bool) {
	if json.Unmarshal(raw, &i.Members) != nil || i.Members == nil {
		return Item{}, false
	}
	i.Type, i.Raw = i.text("type"), raw
	if i.Type == "" && i.text("role") == "assistant" {
		i.Type = TypeMessage
	}
	return i, i.Type != ""
}

// unanswered holds the types of calls of tools that this client has not.
var unanswered = []string{
	"custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", "tool_search_call",
	"mcp_approval_request", "mcp_approval_response", "item_reference",
}

// Unanswered reports whether an item is a call that this client cannot answer. Servers refuse it without a result.
func (i Item) Unanswered() bool { return slices.Contains(unanswered, i.Type) }

// isResult reports whether an item is the result of a call, which an answer has only of calls that are left out.
func (i Item) isResult() bool { return strings.HasSuffix(i.Type, "_output") }

// readItems decodes the output of an answer. ok is false if it is not a list of items.
func readItems(raw json.RawMessage) (items []Item, ok bool) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	for _, entry := range list {
		item, ok := ReadItem(entry)
		if !ok {
			return nil, false
		}
		items = append(items, item)
	}
	return items, len(items) > 0
}

func (i Item) text(name string) string { return loose.Scalar(i.Members[name]) }

// id returns the item's id, or "" if it has none that is a text.
func (i Item) id() string {
	if id := i.Members["id"]; len(id) > 0 && id[0] == '"' {
		return loose.Scalar(id)
	}
	return ""
}

// Said returns the text and the refusal of a message. regular says that its content is a list of parts.
func (i Item) Said() (said, refusal string, regular bool) {
	if i.Type != TypeMessage {
		return "", "", false
	}
	content := i.Members["content"]
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return loose.Scalar(content), "", false
	}
	var text, refused loose.Growing
	regular = true
	for _, raw := range parts {
		var part struct {
			Type    loose.Text     `json:"type"`
			Text    loose.Fragment `json:"text"`
			Refusal loose.Fragment `json:"refusal"`
		}
		if json.Unmarshal(raw, &part) != nil || part.Type == "" {
			regular = false
		}
		text.Add(part.Text)
		refused.Add(part.Refusal)
	}
	text.End()
	refused.End()
	return text.String(), refused.String(), regular && parts != nil
}

// Said returns the text of an answer. Its messages are paragraphs.
func Said(items []Item) string {
	var all []string
	for _, item := range items {
		if text, _, _ := item.Said(); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, Paragraph)
}

// Paragraph is between the texts of two messages of an answer.
const Paragraph = "\n\n"
