// Package messagesbody renders requests of Anthropic's Messages API.
//
// A request whose messages are extended at the end has the same system prompt, tools and earlier blocks, byte for byte.
// Only the cache marks move.
package messagesbody

import (
	"bytes"
	"encoding/json"
	"maps"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/wire"
)

// Options are the settings of a provider that change the body.
type Options struct {
	Provider string // whose answers are sent back as they came; empty: none are
	NoStream bool   // do not ask for a streamed answer
	// Extra holds more fields of the body, as JSON. Check says which it may have. They replace no field that is
	// set by Render; tool_choice is sent only with tools.
	Extra map[string]json.RawMessage
}

// DefaultMaxTokens is the limit of an answer, in tokens, if the request has none: the API demands one. A budget for
// thinking is added to it.
const DefaultMaxTokens = 8192

// Marks of what the server caches. It takes at most 4 in a request; of the messages, the last maxTail users' are
// marked.
const (
	mark    = `,"cache_control":{"type":"ephemeral"}`
	maxTail = 2
)

// Render returns the body of a request. Strict servers accept it for any request: messages alternate and begin with a
// user's, every call has an object as input, a unique id and exactly one result at the beginning of the next message,
// and no block of ours is blank. A request whose answer may not be longer than the budget for thinking, such as one for
// a summary, asks for none.
func Render(o Options, req inference.Request) (whole []byte, err error) {
	if t := thinkingOf(o.Extra); t.leavesNoRoom(req.MaxOutputTokens) {
		o.Extra = maps.Clone(o.Extra)
		delete(o.Extra, "thinking")
	}
	if err := CheckAnswer(o.Extra, req.MaxOutputTokens, req.Temperature); err != nil {
		return nil, err
	}
	w := write(o.Provider, req)
	if len(w.turns) == 0 {
		return nil, wire.ErrNoMessage
	}
	body := rest(o, req)
	if len(w.system) > 0 {
		body["system"] = list(w.system, true)
	}
	wire.InBuffer(func(b []byte) []byte {
		b = w.appendMessages(b)
		body["messages"] = wire.Encoded(b)
		wire.InBuffer(func(b []byte) []byte {
			if b, err = wire.Append(b, body); err == nil {
				whole = bytes.Clone(b)
				w.remember(req)
			}
			return b
		})
		return b
	})
	return whole, err
}

// rest returns the members of a body other than its messages and its system prompt.
func rest(o Options, req inference.Request) wire.Object {
	body := wire.Object{"model": req.Model, "max_tokens": maxTokens(o.Extra, req.MaxOutputTokens)}
	if !o.NoStream {
		body["stream"] = true
	}
	if req.Temperature != nil {
		body["temperature"] = *req.Temperature
	}
	tools := declarations.Of(req.Tools)
	if len(tools) == 0 {
		if tools = declarations.Of(wire.FormerTools(req.Messages)); len(tools) > 0 {
			body["tool_choice"] = wire.Encoded(`{"type":"none"}`)
		}
	}
	if len(tools) > 0 {
		body["tools"] = list(tools, true)
	}
	for name, value := range o.Extra {
		_, taken := body[name]
		if !taken && !own[name] && (name != "tool_choice" || len(tools) > 0) {
			body[name] = value
		}
	}
	return body
}

func maxTokens(extra map[string]json.RawMessage, asked int) int {
	if asked > 0 {
		return asked
	}
	return DefaultMaxTokens + thinkingOf(extra).Budget
}

// declarations holds the declarations of tools.
var declarations = wire.NewDeclarations(func(tool inference.ToolDefinition) wire.Encoded {
	d := wire.Object{"name": wire.ToolName(tool.Name), "input_schema": wire.Schema(tool.Parameters)}
	if tool.Description != "" {
		d["description"] = tool.Description
	}
	text, _ := wire.Append(nil, d) // texts, and JSON that was decoded
	return text
})

// list returns a JSON list of objects. marked says that the last one has a cache mark.
func list(objects []wire.Encoded, marked bool) wire.Encoded {
	return appendObjects(nil, objects, marked)
}

func appendObjects(b []byte, objects []wire.Encoded, marked bool) []byte {
	b = append(b, '[')
	for i, object := range objects {
		if i > 0 {
			b = append(b, ',')
		}
		if marked && i == len(objects)-1 {
			b = append(append(append(b, object[:len(object)-1]...), mark...), '}')
		} else {
			b = append(b, object...)
		}
	}
	return append(b, ']')
}
