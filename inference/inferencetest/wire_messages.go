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
		violations: MessagesViolations, exchanges: messagesExchanges,
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
		blocks = append(blocks, map[string]any{"type": "thinking", "thinking": a.Thinking, "signature": "c2ln"})
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
			delta("signature_delta", "signature", "c2ln")
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
	return map[string]any{"input_tokens": a.In - a.Cached, "cache_read_input_tokens": a.Cached,
		"cache_creation_input_tokens": 0, "output_tokens": out}
}

// messagesExchanges returns the calls of a request with their results.
func messagesExchanges(body []byte) (all []exchange) {
	var request struct {
		Messages []struct {
			Content []struct {
				Type, ID, Name, Content string
				Input                   json.RawMessage
				Answers                 string `json:"tool_use_id"`
			}
		}
	}
	_ = json.Unmarshal(body, &request) // a strict server reports faults
	for _, m := range request.Messages {
		for _, b := range m.Content {
			switch b.Type {
			case "tool_use":
				all = append(all, exchange{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
			case "tool_result":
				for i := range all {
					if all[i].ID == b.Answers {
						all[i].Result = b.Content
					}
				}
			}
		}
	}
	return all
}
