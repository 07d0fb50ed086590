package inferencetest

import "encoding/json"

// ResponsesWire returns the wire of OpenAI's Responses API.
func ResponsesWire() *Wire {
	own := "the group is about the chunks of Chat Completions; package responses has tests of its own events"
	return &Wire{
		Name: "responses", path: "/responses", whole: responsesWhole, stream: responsesStream, fault: chatFault,
		failing: func(code, message string) string {
			return event("error", encode(map[string]any{"type": "error", "code": code, "message": message,
				"param": nil}))
		},
		violations: ResponsesViolations, chat: responsesChat, pieces: responsesPieces,
		echo:     func(a Spoken) string { return encode(map[string]any{"input": responsesItems(a)}) },
		finishes: map[string]string{"stop": "completed", "tool_calls": "completed", "length": "max_output_tokens"},
		Skips: map[string]string{
			"answers in chunks": own, "broken chunks": own, "errors in chunks": own,
			"requests for completions":             "package responses compares whole bodies",
			"what completions send back of theirs": "items go back whole; package responses tests it",
			"ids of nine letters and digits":       "package responses compares whole bodies",
		},
	}
}

// responsesItems returns the items of an answer.
func responsesItems(a Spoken) []map[string]any {
	items := []map[string]any{}
	if a.Thinking != "" {
		items = append(items, map[string]any{"type": "reasoning", "id": "rs_" + a.ID,
			"encrypted_content": a.signature(),
			"summary":           []any{map[string]any{"type": "summary_text", "text": a.Thinking}}})
	}
	if a.Text != "" {
		items = append(items, map[string]any{"type": "message", "id": "msg_" + a.ID, "role": "assistant",
			"status": "completed", "content": []any{map[string]any{"type": "output_text", "annotations": []any{},
				"text": a.Text}}})
	}
	for _, c := range a.Calls {
		items = append(items, map[string]any{"type": "function_call", "id": "fc_" + c.ID, "call_id": c.ID,
			"name": c.Name, "arguments": c.Arguments, "status": "completed"})
	}
	return items
}

func responsesObject(a Spoken) map[string]any {
	body := map[string]any{"id": a.ID, "object": "response", "model": a.Model, "status": "completed",
		"output": responsesItems(a), "error": nil, "incomplete_details": nil}
	switch finish := ResponsesWire().finish(a.Finish); finish {
	case "completed":
	case "":
		body["status"] = "in_progress"
	case "max_output_tokens", "content_filter":
		body["status"], body["incomplete_details"] = "incomplete", map[string]any{"reason": finish}
	default:
		body["status"] = finish
	}
	if a.In+a.Out > 0 {
		body["usage"] = map[string]any{"input_tokens": a.In, "output_tokens": a.Out,
			"input_tokens_details": map[string]any{"cached_tokens": a.Cached}}
	}
	return body
}

func responsesWhole(a Spoken) string { return encode(responsesObject(a)) }

func responsesStream(a Spoken) (begun, rest []string) {
	add := func(kind string, members map[string]any) string {
		members["type"] = kind
		return event(kind, encode(members))
	}
	begun = append(begun, add("response.created", map[string]any{"response": map[string]any{"id": a.ID,
		"model": a.Model, "status": "in_progress"}}))
	for i, item := range responsesItems(a) {
		started := map[string]any{"type": item["type"], "id": item["id"], "status": "in_progress"}
		kind, member, pieces := "response.output_text.delta", "content_index", a.pieces(a.Text)
		switch item["type"] {
		case "reasoning":
			kind, member, pieces = "response.reasoning_summary_text.delta", "summary_index", a.pieces(a.Thinking)
		case "function_call":
			arguments, _ := item["arguments"].(string)
			kind, member, pieces = "response.function_call_arguments.delta", "", halves(arguments)
			started["name"], started["call_id"], started["arguments"] = item["name"], item["call_id"], ""
		}
		begun = append(begun, add("response.output_item.added", map[string]any{"output_index": i, "item": started}))
		for _, piece := range pieces {
			delta := map[string]any{"item_id": item["id"], "output_index": i, "delta": piece}
			if member != "" {
				delta[member] = 0
			}
			begun = append(begun, add(kind, delta))
		}
		begun = append(begun, add("response.output_item.done", map[string]any{"output_index": i, "item": item}))
	}
	kind := "response.completed"
	if ResponsesWire().finish(a.Finish) != "completed" {
		kind = "response.incomplete"
		if body := responsesObject(a); body["status"] != "incomplete" {
			kind = "response.done"
		}
	}
	return begun, []string{add(kind, map[string]any{"response": responsesObject(a)})}
}

// responsesChat returns a request as Chat Completions would have it.
func responsesChat(body []byte) Chat {
	var request struct {
		Model, Instructions string
		Stream              bool
		Input               []struct {
			Type, Role, Name, Arguments, Output string
			Content                             json.RawMessage
			CallID                              string `json:"call_id"`
		}
		Tools  []json.RawMessage
		Choice json.RawMessage `json:"tool_choice"`
	}
	_ = json.Unmarshal(body, &request) // a strict server reports faults
	c := Chat{Model: request.Model, Stream: request.Stream, Tools: request.Tools, ToolChoice: request.Choice}
	says := func(role, text string) ChatMessage {
		return ChatMessage{Role: role, Content: json.RawMessage(quote(text))}
	}
	if request.Instructions != "" {
		c.Messages = append(c.Messages, says("system", request.Instructions))
	}
	for _, item := range request.Input {
		switch item.Type {
		case "reasoning":
		case "function_call":
			call := ChatCall{ID: item.CallID, Type: "function"}
			call.Function.Name, call.Function.Arguments = item.Name, item.Arguments
			if n := len(c.Messages); n == 0 || c.Messages[n-1].Role != "assistant" {
				c.Messages = append(c.Messages, says("assistant", ""))
			}
			last := &c.Messages[len(c.Messages)-1]
			last.ToolCalls = append(last.ToolCalls, call)
		case "function_call_output":
			result := says("tool", item.Output)
			result.ToolCallID = item.CallID
			c.Messages = append(c.Messages, result)
		default:
			c.Messages = append(c.Messages, says(item.Role, responsesText(item.Content)))
		}
	}
	return c
}

// responsesText returns the text of a message item, which has a text or parts.
func responsesText(content json.RawMessage) string {
	var text string
	var parts []struct{ Text string }
	if json.Unmarshal(content, &text) != nil && json.Unmarshal(content, &parts) == nil {
		for _, p := range parts {
			text += p.Text
		}
	}
	return text
}
