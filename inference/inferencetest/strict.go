package inferencetest

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Violations returns what strict providers would refuse in the body of a request for a chat
// completion: calls without exactly one result, results without a call, repeated ids, calls or
// results without declared tools, arguments that are not an object, empty lists and null
// entries.
func Violations(body []byte) []string {
	var shape struct {
		Messages json.RawMessage `json:"messages"`
		Tools    json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(body, &shape); err != nil {
		return []string{"the body is not a JSON object"}
	}
	messages, fault := entries("messages", shape.Messages)
	v := &violations{ids: map[string]bool{}}
	v.add(fault)
	if len(messages) == 0 {
		v.add("there is no message")
	}
	if shape.Tools != nil {
		tools, fault := entries("tools", shape.Tools)
		v.add(fault)
		if len(tools) == 0 {
			v.add("tools is empty")
		}
		v.tools = len(tools) > 0
	}
	for i, raw := range messages {
		v.message(i, raw)
	}
	v.answered("the last message")
	return v.found
}

type violations struct {
	found []string
	tools bool            // tools are declared
	ids   map[string]bool // of all calls
	open  []string        // ids of calls whose results must come next
}

func (v *violations) add(fault string) {
	if fault != "" {
		v.found = append(v.found, fault)
	}
}

func (v *violations) message(i int, raw json.RawMessage) {
	var m struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
		ToolCalls  json.RawMessage `json:"tool_calls"`
	}
	where := fmt.Sprintf("messages[%d]", i)
	if err := json.Unmarshal(raw, &m); err != nil {
		v.add(where + " cannot be read: " + err.Error())
		return
	}
	switch m.Role {
	case "tool":
		v.result(where, m.ToolCallID)
		return
	case "assistant":
		v.answered(where)
		v.calls(where, m.ToolCalls)
		if m.ToolCalls == nil && (m.Content == nil || string(m.Content) == "null" || string(m.Content) == `""`) {
			v.add(where + " has neither content nor calls")
		}
		return
	case "system", "user", "developer":
	default:
		v.add(where + " has the unknown role " + m.Role)
	}
	v.answered(where)
}

func (v *violations) result(where, id string) {
	if !v.tools {
		v.add(where + " is a tool message, but no tools are declared")
	}
	for i, open := range v.open {
		if open == id {
			v.open = append(v.open[:i], v.open[i+1:]...)
			return
		}
	}
	v.add(fmt.Sprintf("%s answers the call %q, which is not open", where, id))
}

// answered adds a violation for each call that is still open at a message.
func (v *violations) answered(where string) {
	for _, id := range v.open {
		v.add(fmt.Sprintf("the call %q is not answered before %s", id, where))
	}
	v.open = nil
}

func (v *violations) calls(where string, raw json.RawMessage) {
	if raw == nil {
		return
	}
	calls, fault := entries(where+".tool_calls", raw)
	v.add(fault)
	if len(calls) == 0 {
		v.add(where + ".tool_calls is empty")
	}
	if !v.tools {
		v.add(where + " has calls, but no tools are declared")
	}
	for _, entry := range calls {
		var c ChatCall
		if err := json.Unmarshal(entry, &c); err != nil {
			v.add(where + " has a call that cannot be read: " + err.Error())
			continue
		}
		if c.ID == "" || v.ids[c.ID] {
			v.add(fmt.Sprintf("%s has a call with the id %q, which is empty or used before", where, c.ID))
		}
		if c.Type != "function" || c.Function.Name == "" {
			v.add(fmt.Sprintf("the call %q has no name or is not a function", c.ID))
		}
		var arguments map[string]json.RawMessage
		if json.Unmarshal([]byte(c.Function.Arguments), &arguments) != nil || arguments == nil {
			v.add(fmt.Sprintf("the arguments of the call %q are not a JSON object", c.ID))
		}
		v.ids[c.ID] = true
		v.open = append(v.open, c.ID)
	}
}

// entries returns the objects of a list. fault is not empty if the list has other entries.
func entries(name string, raw json.RawMessage) (objects []json.RawMessage, fault string) {
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil || all == nil {
		return nil, name + " is not a list"
	}
	for i, entry := range all {
		if !bytes.HasPrefix(bytes.TrimSpace(entry), []byte("{")) {
			fault = fmt.Sprintf("%s[%d] is not an object", name, i)
			continue
		}
		objects = append(objects, entry)
	}
	return objects, fault
}
