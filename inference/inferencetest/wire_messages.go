package inferencetest

import (
	"encoding/json"
)

// MessagesWire returns the wire of Anthropic's Messages API.
func MessagesWire() *Wire {
	own := "the group is about the chunks of Chat Completions; package messages has tests of its own events"
	return &Wire{
		Name: "messages", path: "/messages", whole: messagesWhole, stream: messagesStream, fault: messagesFault,
		failing:    func(code, message string) string { return event("error", messagesFault(code, message)) },
		violations: MessagesViolations, chat: messagesChat, pieces: messagesPieces, marks: true,
		echo: func(a Spoken) string {
			return encode(map[string]any{"messages": []any{
				map[string]any{"role": "assistant", "content": messagesBlocks(a)}}})
		},
		finishes: map[string]string{"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens",
			"content_filter": "refusal"},
		Skips: map[string]string{
			"answers in chunks": own, "broken chunks": own, "errors in chunks": own,
			"requests for completions":             "package messagesbody compares whole bodies",
			"what completions send back of theirs": "blocks go back whole; package messages tests it",
			"ids of nine letters and digits":       "the API has one format of ids",
		},
	}
}

// event returns a server-sent event with a name.
func event(name, text string) string { return "event: " + name + "\n" + data(text) }

func messagesFault(code, message string) string {
	return encode(map[string]any{"type": "error", "error": map[string]any{"type": code, "message": message},
		"request_id": "req_1"})
}

func messagesBlocks(a Spoken) (blocks []map[string]any) {
	if a.Thinking != "" {
		blocks = append(blocks, map[string]any{"type": "thinking", "thinking": a.Thinking,
			"signature": a.signature()})
	}
	if a.Text != "" {
		blocks = append(blocks, map[string]any{"type": "text", "text": a.Text})
	}
	for _, c := range a.Calls {
		input := json.RawMessage("{}") // of a call that was cut
		if json.Valid([]byte(c.Arguments)) {
			input = json.RawMessage(c.Arguments)
		}
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": input})
	}
	return blocks
}

func messagesWhole(a Spoken) string {
	body := map[string]any{"id": a.ID, "type": "message", "role": "assistant", "model": a.Model,
		"content": append([]map[string]any{}, messagesBlocks(a)...), "stop_reason": nil, "stop_sequence": nil}
	if a.Finish != "" {
		body["stop_reason"] = MessagesWire().finish(a.Finish)
	}
	if usage := messagesUsage(a, a.Out); usage != nil {
		body["usage"] = usage
	}
	return encode(body)
}

func messagesStream(a Spoken) (begun, rest []string) {
	add := func(kind string, members map[string]any) string {
		members["type"] = kind
		return event(kind, encode(members))
	}
	message := map[string]any{"id": a.ID, "type": "message", "role": "assistant", "model": a.Model, "content": []any{}}
	if usage := messagesUsage(a, 1); usage != nil {
		message["usage"] = usage
	}
	begun = append(begun, add("message_start", map[string]any{"message": message}), event("ping", `{"type":"ping"}`))
	calls := a.Calls
	for i, block := range messagesBlocks(a) {
		var deltas []map[string]any
		delta := func(kind, member string, pieces ...string) {
			for _, piece := range pieces {
				deltas = append(deltas, map[string]any{"type": kind, member: piece})
			}
		}
		switch block["type"] {
		case "thinking":
			block["thinking"], block["signature"] = "", ""
			delta("thinking_delta", "thinking", a.pieces(a.Thinking)...)
			delta("signature_delta", "signature", a.signature())
		case "text":
			block["text"] = ""
			delta("text_delta", "text", a.pieces(a.Text)...)
		default:
			block["input"] = json.RawMessage("{}")
			delta("input_json_delta", "partial_json", append([]string{""}, halves(calls[0].Arguments)...)...)
			calls = calls[1:]
		}
		begun = append(begun, add("content_block_start", map[string]any{"index": i, "content_block": block}))
		for _, d := range deltas {
			begun = append(begun, add("content_block_delta", map[string]any{"index": i, "delta": d}))
		}
		begun = append(begun, add("content_block_stop", map[string]any{"index": i}))
	}
	last := map[string]any{"delta": map[string]any{"stop_reason": nil}}
	if a.Finish != "" {
		last["delta"] = map[string]any{"stop_reason": MessagesWire().finish(a.Finish), "stop_sequence": nil}
	}
	if a.In+a.Out > 0 {
		last["usage"] = map[string]any{"output_tokens": a.Out}
	}
	return begun, []string{add("message_delta", last), add("message_stop", map[string]any{})}
}

func messagesUsage(a Spoken, out int64) map[string]any {
	if a.In+a.Out == 0 {
		return nil
	}
	return map[string]any{"input_tokens": a.In - a.Cached - a.Written, "cache_read_input_tokens": a.Cached,
		"cache_creation_input_tokens": a.Written, "output_tokens": out}
}

// messagesChat returns a request as Chat Completions would have it: each text and each result is a message of its own.
func messagesChat(body []byte) Chat {
	var request struct {
		Model    string
		Stream   bool
		System   []messagesPart
		Messages []struct {
			Role    string
			Content []messagesPart
		}
		Tools  []json.RawMessage
		Choice json.RawMessage `json:"tool_choice"`
	}
	_ = json.Unmarshal(body, &request) // Strict reports faults
	c := Chat{Model: request.Model, Stream: request.Stream, Tools: request.Tools, ToolChoice: request.Choice}
	for _, b := range request.System {
		c.Messages = append(c.Messages, b.says("system"))
	}
	for _, m := range request.Messages {
		if m.Role == "assistant" {
			c.Messages = append(c.Messages, messagesAnswer(m.Content))
			continue
		}
		for _, b := range m.Content {
			if b.Type == "tool_result" {
				result := messagesPart{Text: b.Content}.says("tool")
				result.ToolCallID = b.Answers
				c.Messages = append(c.Messages, result)
			} else {
				c.Messages = append(c.Messages, b.says(m.Role))
			}
		}
	}
	return c
}

// A messagesPart is a block of a request that a strict server takes.
type messagesPart struct {
	Type, Text, ID, Name, Content string
	Input                         json.RawMessage
	Answers                       string `json:"tool_use_id"`
}

func (p messagesPart) says(role string) ChatMessage {
	return ChatMessage{Role: role, Content: json.RawMessage(quote(p.Text))}
}

func messagesAnswer(blocks []messagesPart) ChatMessage {
	var said messagesPart
	var calls []ChatCall
	for _, b := range blocks {
		said.Text += b.Text
		if b.Type == "tool_use" {
			call := ChatCall{ID: b.ID, Type: "function"}
			call.Function.Name, call.Function.Arguments = b.Name, string(b.Input)
			calls = append(calls, call)
		}
	}
	answer := said.says("assistant")
	answer.ToolCalls = calls
	return answer
}
