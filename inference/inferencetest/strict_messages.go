package inferencetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// MessagesViolations returns what strict providers would refuse in the body of a request of Anthropic's Messages API:
// no limit of the answer, messages that do not alternate or do not begin with the user's, calls without exactly one
// result at the beginning of the next message, results without a call, repeated or invalid ids, calls without declared
// tools, input that is not an object, blank texts outside of answers, empty lists, and cache marks that are too many or
// stand where none may.
func MessagesViolations(body []byte) []string {
	var shape struct {
		MaxTokens int             `json:"max_tokens"`
		System    json.RawMessage `json:"system"`
		Messages  json.RawMessage `json:"messages"`
		Tools     json.RawMessage `json:"tools"`
		Choice    json.RawMessage `json:"tool_choice"`
	}
	if err := json.Unmarshal(body, &shape); err != nil {
		return []string{"the body is not a JSON object of the API: " + err.Error()}
	}
	v := &messagesViolations{violations: violations{ids: map[string]bool{}}}
	if shape.MaxTokens < 1 {
		v.add("max_tokens is missing")
	}
	v.toolList(shape.Tools, shape.Choice)
	if shape.System != nil {
		v.blocks("system", "system", shape.System)
	}
	messages, fault := entries("messages", shape.Messages)
	v.add(fault)
	if len(messages) == 0 {
		v.add("there is no message")
	}
	for i, raw := range messages {
		v.message(i, raw)
	}
	v.answered("the end")
	if v.marks > 4 {
		v.add(fmt.Sprintf("there are %d cache marks", v.marks))
	}
	return v.found
}

type messagesViolations struct {
	violations
	role  string // of the message before
	marks int
}

var wordName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

func (v *messagesViolations) toolList(raw, choice json.RawMessage) {
	if raw == nil {
		if choice != nil {
			v.add("tool_choice without tools")
		}
		return
	}
	tools, fault := entries("tools", raw)
	v.add(fault)
	v.tools = len(tools) > 0
	if !v.tools {
		v.add("tools is empty")
	}
	names := map[string]bool{}
	for i, raw := range tools {
		var tool struct {
			Name   string `json:"name"`
			Schema struct {
				Type string `json:"type"`
			} `json:"input_schema"`
			Mark json.RawMessage `json:"cache_control"`
		}
		if err := json.Unmarshal(raw, &tool); err != nil || !wordName.MatchString(tool.Name) || names[tool.Name] ||
			tool.Schema.Type != "object" {
			v.add(fmt.Sprintf("tools[%d] has no valid name of its own, or no schema of an object", i))
		}
		names[tool.Name] = true
		v.mark(tool.Mark)
	}
}

func (v *messagesViolations) mark(raw json.RawMessage) {
	if raw != nil {
		v.marks++
	}
}

func (v *messagesViolations) message(i int, raw json.RawMessage) {
	var m struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	where := fmt.Sprintf("messages[%d]", i)
	if err := json.Unmarshal(raw, &m); err != nil {
		v.add(where + " cannot be read: " + err.Error())
		return
	}
	switch {
	case m.Role != "user" && m.Role != "assistant":
		v.add(where + " has the unknown role " + m.Role)
	case i == 0 && m.Role != "user":
		v.add(where + " is not the user's")
	case m.Role == v.role:
		v.add(where + " has the role of the message before")
	}
	v.role = m.Role
	if m.Role == "assistant" {
		v.answered(where)
	}
	v.blocks(where, m.Role, m.Content)
	if m.Role == "user" {
		v.answered("the end of " + where)
	}
}

// A messagesBlock is a block of content, or of the system prompt.
type messagesBlock struct {
	Type   string          `json:"type"`
	Text   any             `json:"text"`
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Answer string          `json:"tool_use_id"`
	Mark   json.RawMessage `json:"cache_control"`
}

func (v *messagesViolations) blocks(where, role string, raw json.RawMessage) {
	blocks, fault := entries(where, raw)
	v.add(fault)
	if len(blocks) == 0 {
		v.add(where + " has no block")
	}
	results := true // nothing but results so far
	for i, raw := range blocks {
		var b messagesBlock
		at := fmt.Sprintf("%s[%d]", where, i)
		if err := json.Unmarshal(raw, &b); err != nil || b.Type == "" {
			v.add(at + " is no block")
			continue
		}
		v.mark(b.Mark)
		if b.Type == "tool_result" && !results {
			v.add(at + " is a result after another block")
		}
		results = results && b.Type == "tool_result"
		v.block(at, role, b)
	}
}

func (v *messagesViolations) block(at, role string, b messagesBlock) {
	text, _ := b.Text.(string)
	if b.Mark != nil && (strings.Contains(b.Type, "thinking") || b.Type == "text" && text == "") {
		v.add(at + " must not have a cache mark")
	}
	switch {
	case b.Type == "text":
		if role != "assistant" && strings.TrimSpace(text) == "" {
			v.add(at + " is blank")
		}
	case b.Type == "tool_use" && role == "assistant":
		v.call(at, b)
	case b.Type == "tool_result" && role == "user":
		v.result(at, b.Answer)
	case role != "assistant" || b.Type == "tool_result":
		v.add(fmt.Sprintf("%s has the type %s, which the role %s cannot have", at, b.Type, role))
	}
}

func (v *messagesViolations) call(at string, b messagesBlock) {
	if !v.tools {
		v.add(at + " is a call, but no tools are declared")
	}
	if !wordName.MatchString(b.ID) || v.ids[b.ID] {
		v.add(fmt.Sprintf("%s has the id %q, which is invalid or used before", at, b.ID))
	}
	if !wordName.MatchString(b.Name) {
		v.add(fmt.Sprintf("%s has the name %q", at, b.Name))
	}
	if !bytes.HasPrefix(bytes.TrimSpace(b.Input), []byte("{")) {
		v.add(at + " has an input that is not an object")
	}
	v.ids[b.ID] = true
	v.open = append(v.open, b.ID)
}
