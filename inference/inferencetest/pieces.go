package inferencetest

import (
	"encoding/json"
	"strings"
)

// A piece is a part of a request that a model reads, as it was sent: a tool, a system prompt, a message, an item, or a
// block of a message. The pieces of a request are in the order in which its provider reads them.
type piece struct {
	text      string // its bytes, without a cache mark
	marked    bool   // it has a cache mark
	signature string // of reasoning; empty: it has none
	answered  string // what it repeats of an answer, without what a client may write otherwise; empty: nothing
	// unbound says that reasoning after it is not signed over it.
	unbound bool
}

// asSent returns the elements of a list as they were sent.
func asSent(list json.RawMessage) (all []json.RawMessage) {
	_ = json.Unmarshal(list, &all) // a strict server reports faults
	return all
}

// canonical returns JSON with its members sorted, and its numbers as they are.
func canonical(text string) string {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return text
	}
	return encode(v)
}

func chatPieces(body []byte) (all []piece) {
	var request struct{ Tools, Messages json.RawMessage }
	_ = json.Unmarshal(body, &request) // a strict server reports faults
	for _, tool := range asSent(request.Tools) {
		all = append(all, piece{text: string(tool)})
	}
	for _, message := range asSent(request.Messages) {
		p := piece{text: string(message)}
		p.signature, p.answered = chatAnswered(message)
		all = append(all, p)
	}
	return all
}

// chatAnswered returns the signature of an answer, and what it repeats.
func chatAnswered(message json.RawMessage) (signature, answered string) {
	var m struct {
		ChatMessage

		Details json.RawMessage `json:"reasoning_details"`
	}
	_ = json.Unmarshal(message, &m) // a strict server reports faults
	if m.Role != "assistant" {
		return "", ""
	}
	for i := range m.ToolCalls {
		m.ToolCalls[i].Function.Arguments = canonical(m.ToolCalls[i].Function.Arguments)
	}
	var details []struct{ Signature string }
	_ = json.Unmarshal(m.Details, &details) // absent: it is not signed
	for _, d := range details {
		signature = d.Signature
	}
	return signature, encode([]any{m.Text(), m.ToolCalls, canonical(string(m.Details))})
}

func responsesPieces(body []byte) (all []piece) {
	var request struct{ Instructions, Tools, Input json.RawMessage }
	_ = json.Unmarshal(body, &request) // a strict server reports faults
	for _, tool := range asSent(request.Tools) {
		all = append(all, piece{text: string(tool)})
	}
	if request.Instructions != nil {
		all = append(all, piece{text: string(request.Instructions)})
	}
	for _, item := range asSent(request.Input) {
		p := piece{text: string(item)}
		p.signature, p.answered = itemAnswered(item)
		all = append(all, p)
	}
	return all
}

// itemAnswered returns the signature of an item of an answer, and what it repeats.
func itemAnswered(item json.RawMessage) (signature, answered string) {
	var i struct {
		Type, Role, Arguments string
		Encrypted             string `json:"encrypted_content"`
	}
	_ = json.Unmarshal(item, &i) // a strict server reports faults
	switch {
	case i.Type == "function_call":
		return "", strings.Replace(canonical(string(item)), quote(i.Arguments), quote(canonical(i.Arguments)), 1)
	case i.Type == "reasoning", i.Type == "message" && i.Role == "assistant":
		return i.Encrypted, canonical(string(item))
	}
	return "", ""
}

func messagesPieces(body []byte) (all []piece) {
	var request struct {
		Tools, System json.RawMessage
		Choice        json.RawMessage `json:"tool_choice"`
		Thinking      json.RawMessage
		Messages      []struct {
			Role    string
			Content json.RawMessage
		}
	}
	_ = json.Unmarshal(body, &request) // a strict server reports faults
	for _, tool := range asSent(request.Tools) {
		all = append(all, block("tool", tool))
	}
	for _, b := range asSent(request.System) {
		all = append(all, block("system", b))
	}
	// A request with other options finds no messages in the cache.
	all = append(all, piece{text: string(request.Choice) + string(request.Thinking), unbound: true})
	for _, m := range request.Messages {
		for _, b := range asSent(m.Content) {
			all = append(all, block(m.Role, b))
		}
	}
	return all
}

// block returns a block of a message, or of what stands before the messages.
func block(role string, raw json.RawMessage) piece {
	var b struct {
		Type, Signature string
		Mark            json.RawMessage `json:"cache_control"`
	}
	_ = json.Unmarshal(raw, &b) // a strict server reports faults
	p := piece{text: string(raw), signature: b.Signature, marked: b.Mark != nil}
	if mark := `,"cache_control":` + string(b.Mark); p.marked {
		if at := strings.LastIndex(p.text, mark); at >= 0 {
			p.text = p.text[:at] + p.text[at+len(mark):]
		}
	}
	if role == "assistant" {
		p.answered = canonical(p.text)
	}
	p.text = role + " " + p.text
	return p
}
