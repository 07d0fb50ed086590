package inferencetest

// ChatWire returns the wire of OpenAI's Chat Completions.
func ChatWire() *Wire {
	return &Wire{
		Name: "chat", path: "/chat/completions", whole: chatWhole, stream: chatStream, fault: chatFault,
		failing:    func(code, message string) string { return data(chatFault(code, message)) },
		violations: Violations,
		exchanges:  func(body []byte) []exchange { return exchanges(Recorded{Body: body}.Chat()) },
	}
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
		begun = append(begun, chunk(map[string]any{"reasoning": piece}, nil))
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

func chatWhole(a Spoken) string {
	message := map[string]any{"role": "assistant", "content": a.Text}
	if a.Text == "" {
		message["content"] = nil
	}
	if a.Thinking != "" {
		message["reasoning"] = a.Thinking
	}
	var list []any
	for _, c := range a.Calls {
		list = append(list, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name,
			"arguments": c.Arguments}})
	}
	if len(list) > 0 {
		message["tool_calls"] = list
	}
	choice := map[string]any{"index": 0, "message": message}
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
