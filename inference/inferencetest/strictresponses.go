package inferencetest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ResponsesViolations returns what strict providers would refuse in the body of a stateless request of the Responses
// API: something that the server had to remember, calls without exactly one result, results without a call, repeated
// ids, arguments that are not an object, reasoning that is not encrypted or not followed by what it led to, unknown
// items, empty lists and null members.
func ResponsesViolations(body []byte) []string {
	var shape struct {
		Input    json.RawMessage `json:"input"`
		Tools    json.RawMessage `json:"tools"`
		Store    *bool           `json:"store"`
		Include  []string        `json:"include"`
		Previous json.RawMessage `json:"previous_response_id"`
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(body, &shape); err != nil {
		return []string{"the body cannot be read: " + err.Error()}
	}
	v := &itemViolations{ids: map[string]bool{}, calls: map[string]bool{}}
	if shape.Store == nil || *shape.Store || shape.Previous != nil || shape.Messages != nil {
		v.add("", "the request is not stateless")
	}
	v.encrypted = slices.Contains(shape.Include, "reasoning.encrypted_content")
	items, fault := entries("input", shape.Input)
	v.violations.add(fault)
	if len(items) == 0 {
		v.add("", "there is no input")
	}
	if shape.Tools != nil {
		v.declarations(shape.Tools)
	}
	for i, raw := range items {
		v.item(fmt.Sprintf("input[%d]", i), raw)
	}
	v.answered("the end")
	if v.reasoning {
		v.add("the end", "comes directly after reasoning")
	}
	return v.found
}

type itemViolations struct {
	violations
	ids       map[string]bool // of items
	calls     map[string]bool // ids of all calls
	encrypted bool            // the request includes reasoning.encrypted_content
	reasoning bool            // the item before is reasoning
	result    bool            // the item before is a result
}

func (v *itemViolations) add(where, fault string) { v.violations.add(where + " " + fault) }

func (v *itemViolations) declarations(raw json.RawMessage) {
	tools, fault := entries("tools", raw)
	v.violations.add(fault)
	if len(tools) == 0 {
		v.add("tools", "is empty")
	}
	names := map[string]bool{}
	for _, entry := range tools {
		var tool struct {
			Type, Name string
			Parameters map[string]json.RawMessage
			Strict     *bool
		}
		if json.Unmarshal(entry, &tool) != nil || tool.Type != "function" || !toolNames.MatchString(tool.Name) ||
			tool.Parameters == nil || tool.Strict == nil || names[tool.Name] {
			v.add("tools", "has an entry that is not a function with its own name: "+string(entry))
		}
		names[tool.Name] = true
	}
	v.tools = len(tools) > 0
}

var (
	toolNames = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	callIDs   = regexp.MustCompile(`^[!-~]{1,64}$`)
)

// An inputItem has the members of all items that are checked.
type inputItem struct {
	Type, Role, Status, Name string
	ID                       *string
	CallID                   string `json:"call_id"`
	Content                  json.RawMessage
	Arguments, Output        *string
	Encrypted                string             `json:"encrypted_content"`
	Summary                  *[]json.RawMessage `json:"summary"`
}

func (v *itemViolations) item(where string, raw json.RawMessage) {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // it is an object
	for name, value := range members {
		if string(value) == "null" {
			v.add(where, "has a null as "+name)
		}
		if name != strings.ToLower(name) {
			delete(members, name) // json.Unmarshal ignores the case
		}
	}
	var i inputItem
	if err := json.Unmarshal([]byte(encode(members)), &i); err != nil {
		v.add(where, "cannot be read: "+err.Error())
		return
	}
	if i.ID != nil {
		if *i.ID == "" || v.ids[*i.ID] {
			v.add(where, fmt.Sprintf("has the id %q, which is empty or used before", *i.ID))
		}
		v.ids[*i.ID] = true
	}
	if v.reasoning && (i.Type == "function_call_output" || i.Type == "message" && i.Role != "assistant") {
		v.add(where, "comes directly after reasoning, which was provided without its required following item")
	}
	v.reasoning = i.Type == "reasoning"
	if v.result && i.Type != "function_call_output" || i.Type == "message" && i.Role != "assistant" {
		v.answered(where)
	}
	v.result = i.Type == "function_call_output"
	v.kind(where, i)
}

func (v *itemViolations) kind(where string, i inputItem) {
	switch i.Type {
	case "message":
		v.message(where, i)
	case "reasoning":
		if !v.encrypted {
			v.add(where, "is reasoning, but encrypted reasoning is not asked for")
		}
		if i.Encrypted == "" || i.Summary == nil || i.Status != "" {
			v.add(where, "is reasoning without encrypted_content or summary, or with a status")
		}
	case "function_call":
		var arguments map[string]json.RawMessage
		if i.Arguments == nil || json.Unmarshal([]byte(*i.Arguments), &arguments) != nil || arguments == nil {
			v.add(where, "has arguments that are not a JSON object in a text")
		}
		if !callIDs.MatchString(i.CallID) || v.calls[i.CallID] || !toolNames.MatchString(i.Name) || !v.tools {
			v.add(where, fmt.Sprintf("is a call %q of %q: its id is wrong or used before, or there is no such tool",
				i.CallID, i.Name))
		}
		v.calls[i.CallID] = true
		v.open = append(v.open, i.CallID)
	case "function_call_output":
		if i.Output == nil {
			v.add(where, "is a result without output")
		}
		v.violations.result(where, i.CallID)
	case "", "item_reference", "custom_tool_call", "computer_call", "local_shell_call", "shell_call",
		"apply_patch_call", "mcp_approval_request", "text", "thinking", "tool_use", "tool_result":
		v.add(where, fmt.Sprintf("has the type %q, which a client cannot send, or not without a result", i.Type))
	}
}

// message checks a message: text, or the content of an answer with its id and status.
func (v *itemViolations) message(where string, i inputItem) {
	var text string
	isText := json.Unmarshal(i.Content, &text) == nil
	parts, fault := entries(where+".content", i.Content)
	switch {
	case !slices.Contains([]string{"user", "system", "developer", "assistant"}, i.Role):
		v.add(where, "has the unknown role "+i.Role)
	case isText && i.ID == nil && (text != "" || i.Role == "assistant"):
	case isText:
		v.add(where, "is an empty text, or a text with an id")
	case i.Role != "assistant" || i.ID == nil || i.Status == "":
		v.add(where, "has parts, but is not an answer with id and status")
	default:
		v.violations.add(fault)
		for _, raw := range parts {
			var part struct{ Type string }
			_ = json.Unmarshal(raw, &part) // it is an object
			if part.Type == "" || strings.HasPrefix(part.Type, "input_") {
				v.add(where, fmt.Sprintf("has a part of the type %q", part.Type))
			}
		}
	}
}
