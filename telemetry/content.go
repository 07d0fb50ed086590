package telemetry

import (
	"encoding/json"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"turnkeeper/inference"
)

// Limits of conversation text in spans, with Options.Content.
const (
	shownChars    = 4000 // of one text
	shownMessages = 40   // of one request, the newest
)

// The message format of the GenAI conventions.
type (
	part struct {
		Type      string `json:"type"` // text, tool_call, tool_call_response
		Content   string `json:"content,omitempty"`
		ID        string `json:"id,omitempty"`
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments,omitempty"`
		Response  string `json:"response,omitempty"`
	}
	message struct {
		Role   string `json:"role"`
		Parts  []part `json:"parts"`
		Finish string `json:"finish_reason,omitempty"`
	}
)

// shown masks secrets and cuts the text.
func (t *Telemetry) shown(text string) string {
	text = t.mask(text)
	if utf8.RuneCountInString(text) <= shownChars {
		return text
	}
	return string([]rune(text)[:shownChars]) + "…"
}

// asked returns the attributes of a model's request.
func (t *Telemetry) asked(r inference.Request) []attribute.KeyValue {
	var system []part
	var messages []message
	for _, m := range r.Messages {
		if m.Role == inference.RoleSystem {
			system = append(system, part{Type: "text", Content: t.shown(m.Text)})
			continue
		}
		messages = append(messages, message{Role: string(m.Role), Parts: t.partsOf(m)})
	}
	messages = messages[max(0, len(messages)-shownMessages):]
	return []attribute.KeyValue{jsonAttribute("gen_ai.system_instructions", system),
		jsonAttribute("gen_ai.input.messages", messages)}
}

func (t *Telemetry) partsOf(m inference.Message) []part {
	if m.Role == inference.RoleTool {
		return []part{{Type: "tool_call_response", ID: m.CallID, Response: t.shown(m.Text)}}
	}
	parts := []part{}
	if m.Text != "" {
		parts = append(parts, part{Type: "text", Content: t.shown(m.Text)})
	}
	return append(parts, t.callsOf(m.Calls)...)
}

func (t *Telemetry) callsOf(calls []inference.Call) (parts []part) {
	for _, c := range calls {
		parts = append(parts, part{Type: "tool_call", ID: c.ID, Name: t.shown(c.Name), Arguments: t.shown(c.Arguments)})
	}
	return parts
}

// said returns the attributes of a model's answer.
func (t *Telemetry) said(r inference.Response) []attribute.KeyValue {
	answer := t.partsOf(inference.Message{Role: inference.RoleAssistant, Text: r.Text, Calls: r.Calls})
	return []attribute.KeyValue{jsonAttribute("gen_ai.output.messages", []message{
		{Role: string(inference.RoleAssistant), Parts: answer, Finish: r.FinishReason},
	})}
}

func jsonAttribute(name string, value any) attribute.KeyValue {
	text, err := json.Marshal(value)
	if err != nil { // the types above always encode
		panic(err)
	}
	return attribute.String(name, string(text))
}
