package inferencetest

import "encoding/json"

// ChatWire returns the wire of OpenAI's Chat Completions.
func ChatWire() *Wire {
	return &Wire{
		Name: "chat", path: "/chat/completions", whole: chatWhole, stream: chatStream, fault: chatFault,
		failing:    func(code, message string) string { return data(chatFault(code, message)) },
		violations: Violations, chat: readChat, pieces: chatPieces,
		echo: func(a Spoken) string { return encode(map[string]any{"messages": []any{chatMessage(a)}}) },
	}
}

func readChat(body []byte) (c Chat) {
	_ = json.Unmarshal(body, &c) // Strict reports faults
	return c
}

// data returns a server-sent event.
func data(text string) string { return "data: " + text + "\n\n" }

func chatFault(code, message string) string {
	return encode(map[string]any{"error": map[string]any{
		"message": message, "type": code, "code": code, "param": nil,
	}})
}

func chatStream(a Spoken) (begun, rest []string) {
	head := map[string]any{"id": a.ID, "object": "chat.completion.chunk", "created": 1, "model": a.Model}
	chunk := func(delta map[string]any, finish any) string {
		head["choices"] = []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}
		return data(encode(head))
	}
	begun = []string{chunk(map[string]any{"role": "assistant", "content": ""}, nil)}
	for _, piece := range a.pieces(a.Thinking) {
		delta := map[string]any{"reasoning": piece}
		if a.Signature != "" {
			delta["reasoning_details"] = []any{chatDetail("text", piece)}
		}
		begun = append(begun, chunk(delta, nil))
	}
	if a.Signature != "" {
		begun = append(begun, chunk(map[string]any{"reasoning_details": []any{chatDetail("signature", a.Signature)}},
			nil))
	}
	for _, piece := range a.pieces(a.Text) {
		begun = append(begun, chunk(map[string]any{"content": piece}, nil))
	}
	for i, c := range a.Calls {
		call := func(members map[string]any) string {
			members["index"] = i
			return chunk(map[string]any{"tool_calls": []any{members}}, nil)
		}
		begun = append(begun, call(map[string]any{"id": c.ID, "type": "function",
			"function": map[string]any{"name": c.Name, "arguments": ""}}))
		for _, piece := range halves(c.Arguments) {
			begun = append(begun, call(map[string]any{"function": map[string]any{"arguments": piece}}))
		}
	}
	if a.Finish != "" {
		rest = append(rest, chunk(map[string]any{}, a.Finish))
	}
	if usage := chatUsage(a); usage != nil {
		head["choices"], head["usage"] = []any{}, usage
		rest = append(rest, data(encode(head)))
	}
	return begun, append(rest, data("[DONE]"))
}

// chatDetail returns an entry of reasoning_details with a member.
func chatDetail(member, text string) map[string]any {
	return map[string]any{"type": "reasoning.text", "index": 0, member: text}
}

func chatMessage(a Spoken) map[string]any {
	message := map[string]any{"role": "assistant", "content": a.Text}
	if a.Text == "" {
		message["content"] = nil
	}
	if a.Thinking != "" {
		message["reasoning"] = a.Thinking
	}
	if a.Signature != "" {
		detail := chatDetail("text", a.Thinking)
		detail["signature"] = a.Signature
		message["reasoning_details"] = []any{detail}
	}
	var list []any
	for _, c := range a.Calls {
		list = append(list, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name,
			"arguments": c.Arguments}})
	}
	if len(list) > 0 {
		message["tool_calls"] = list
	}
	return message
}

func chatWhole(a Spoken) string {
	choice := map[string]any{"index": 0, "message": chatMessage(a)}
	if a.Finish != "" {
		choice["finish_reason"] = a.Finish
	}
	body := map[string]any{"id": a.ID, "object": "chat.completion", "created": 1, "model": a.Model,
		"choices": []any{choice}}
	if usage := chatUsage(a); usage != nil {
		body["usage"] = usage
	}
	return encode(body)
}

func chatUsage(a Spoken) map[string]any {
	if a.In+a.Out == 0 {
		return nil
	}
	usage := map[string]any{"prompt_tokens": a.In, "completion_tokens": a.Out, "total_tokens": a.In + a.Out}
	if a.Cached > 0 {
		usage["prompt_tokens_details"] = map[string]any{"cached_tokens": a.Cached}
	}
	return usage
}
