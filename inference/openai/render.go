package openai

import (
	"cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/wire"
)

// renderChat returns the body of a request for a chat completion. Strict servers accept it for any request: every call
// has an object as arguments, a unique id and exactly one result after it; there is no result
// without a call, no empty list of tools, and no null message.
func renderChat(provider string, p Profile, req inference.Request) (body wire.Body, err error) {
	form := historyForm{provider, wire.IDFormat(p.IDs), p.EmptyContent, p.Reasoning, req.Reasoned}
	wire.InBuffer(func(b []byte) []byte {
		h := write(b, form, req)
		if err = h.err; err == nil && h.isEmpty() {
			err = wire.ErrNoMessage
		}
		if err != nil {
			return h.out
		}
		messages, object := &wire.Gap{}, renderRest(p, req)
		object["messages"] = messages
		var rest []byte
		if rest, err = wire.Append(nil, object); err == nil {
			head, tail := messages.Around(rest)
			body = h.grow(req, head).Body(tail)
		}
		return h.out
	})
	return body, err
}

// renderRest returns the members of a body other than its messages.
func renderRest(p Profile, req inference.Request) wire.Object {
	body := wire.Object{"model": req.Model}
	if !p.NoStream {
		body["stream"] = true
		if !p.NoStreamUsage {
			body["stream_options"] = wire.Encoded(`{"include_usage":true}`)
		}
	}
	tools, choice := declarations.Of(req.Tools), req.ToolChoice
	if len(tools) == 0 {
		tools, choice = declarations.Of(wire.FormerTools(req.Messages)), inference.ToolChoiceNone
	}
	if len(tools) > 0 {
		body["tools"] = tools
		if choice == inference.ToolChoiceNone && !p.NoToolChoice {
			body["tool_choice"] = "none"
		}
	}
	if req.MaxOutputTokens > 0 {
		body[cmp.Or(p.TokenField, "max_tokens")] = req.MaxOutputTokens
	}
	if req.Temperature != nil {
		body["temperature"] = *req.Temperature
	}
	if req.User != "" && !p.NoUser {
		body["user"] = req.User
	}
	for name, value := range p.Extra {
		if _, taken := body[name]; !taken && name != "messages" {
			body[name] = value
		}
	}
	return body
}

// declarations holds the declarations of tools.
var declarations = wire.NewDeclarations(declare)

func declare(tool inference.ToolDefinition) wire.Encoded {
	f := wire.Object{"name": wire.ToolName(tool.Name), "parameters": wire.Schema(tool.Parameters)}
	if tool.Description != "" {
		f["description"] = tool.Description
	}
	// texts, and JSON that was decoded
	text, _ := wire.Append(nil, wire.Object{"type": "function", "function": f})
	return text
}
