package openai

import (
	"encoding/json"
	"strings"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/inference/openai/internal/wire"
	"turnkeeper/internal/kept"
)

// noReasoning is the reasoning_content of an answer that has none, for a provider that demands some.
const noReasoning = "(none recorded)"

// A history writes messages in a form that any server accepts.
type history struct {
	historyForm

	ids     *wire.IDs
	answers *wire.Results
	known   wire.Stem    // what a request before had of the messages; empty: none
	out     wire.Encoded // the list of the others, without its end
	results wire.Encoded // of the newest answer
	err     error
}

// A historyForm is what the text of messages depends on besides them.
type historyForm struct {
	provider  string
	idFormat  wire.IDFormat
	empty     EmptyContent
	reasoning ReasoningReplay
	reasoned  bool // every answer has reasoning_content that is not empty
}

// A writtenHistory is what was written of the messages of a request, with the ids of its calls.
type writtenHistory struct {
	wire.Stem

	ids kept.List[string]
}

// histories keeps what was written of conversations.
var histories wire.Prefixes[writtenHistory]

// write writes the messages of a request that no request before it had: it appends them to b, which must be empty.
func write(b []byte, form historyForm, req inference.Request) *history {
	known, n := histories.Of(req, form)
	h := &history{historyForm: form, known: known.Stem, out: b, answers: wire.NewResults(req.Messages),
		ids: wire.NewIDs(form.idFormat, known.ids)}
	for i, m := range req.Messages[n:] {
		switch m.Role {
		case inference.RoleAssistant:
			h.assistant(n+i, m)
		case inference.RoleTool: // written after its call; without one it is left out
		case inference.RoleSystem:
			h.text("system", m.Text)
		default:
			h.text("user", m.Text)
		}
	}
	return h
}

func (h *history) isEmpty() bool { return h.known.Len()+len(h.out) == 0 }

// grow returns what is written of all messages, after head, and keeps it for the next request of the conversation.
func (h *history) grow(req inference.Request, head []byte) wire.Stem {
	stem := h.known.Grow(head, h.out)
	if h.answers.Complete() {
		histories.Keep(req, h.historyForm, writtenHistory{stem, h.ids.All()}, stem.Len())
	}
	return stem
}

// next begins a message.
func (h *history) next() {
	if h.isEmpty() {
		h.out = append(h.out, '[')
	} else {
		h.out = append(h.out, ',')
	}
}

func (h *history) text(role, text string) {
	if text != "" {
		h.next()
		h.out = append(wire.AppendText(append(h.out, `{"content":`...), text), `,"role":"`+role+`"}`...)
	}
}

// assistant writes an answer, and after it the results of its calls.
func (h *history) assistant(at int, m inference.Message) {
	if m.Text == "" && len(m.Calls) == 0 {
		return
	}
	raw := h.raw(m)
	message := h.replayed(raw, m.Text)
	message["role"] = "assistant"
	if value, ok := message["reasoning_content"]; h.reasoned && (!ok || value == "") {
		message["reasoning_content"] = noReasoning
	}
	if _, ok := message["content"]; !ok {
		h.content(message, m.Text)
	}
	h.results = h.results[:0]
	if len(m.Calls) > 0 {
		message["tool_calls"] = h.calls(at, m.Calls, raw["tool_calls"])
	}
	h.next()
	if out, err := wire.Append(h.out, message); err != nil {
		h.err = err
	} else {
		h.out = out
	}
	h.out = append(h.out, h.results...)
}

// calls returns an answer's calls, and writes their results.
func (h *history) calls(at int, all []inference.Call, raw json.RawMessage) wire.Encoded {
	var rawCalls loose.List
	_ = rawCalls.UnmarshalJSON(raw)
	if len(rawCalls) != len(all) {
		rawCalls = make(loose.List, len(all))
	}
	list := wire.Encoded{'['}
	for i, c := range all {
		if i > 0 {
			list = append(list, ',')
		}
		id := h.ids.Take(c.ID)
		list = appendCall(list, id, c, rawCalls[i])
		h.results = wire.AppendText(append(h.results, `,{"content":`...), h.answers.Of(at, c.ID))
		h.results = append(wire.AppendText(append(h.results, `,"role":"tool","tool_call_id":`...), id), '}')
	}
	return append(list, ']')
}

// raw returns the message as its provider sent it, or nil for another provider.
func (h *history) raw(m inference.Message) map[string]json.RawMessage {
	var raw map[string]json.RawMessage
	if m.RawProvider == "" || m.RawProvider != h.provider || json.Unmarshal(m.Raw, &raw) != nil {
		return nil
	}
	return raw
}

// replayed returns the members, without calls, of a provider's answer that are sent back to
// it: its reasoning, and its content if that came in parts whose text is unchanged.
func (h *history) replayed(raw map[string]json.RawMessage, text string) wire.Object {
	message := wire.Object{}
	if value := raw["extra_content"]; loose.IsObject(value) {
		message["extra_content"] = value
	}
	if h.reasoning == ReasoningNever {
		return message
	}
	for _, name := range []string{"reasoning", "reasoning_content"} {
		if value := raw[name]; loose.Scalar(value) != "" {
			message[name] = value
		}
	}
	var details loose.List
	if _ = details.UnmarshalJSON(raw["reasoning_details"]); len(details) > 0 {
		message["reasoning_details"] = details
	}
	if h.reasoning == ReasoningRequire && message["reasoning_content"] == nil {
		message["reasoning_content"] = ""
	}
	var parts loose.List
	if _ = parts.UnmarshalJSON(raw["content"]); len(parts) > 0 {
		var said strings.Builder
		for _, part := range parts {
			s, _ := loose.Flatten(part)
			said.WriteString(string(s))
		}
		if said.String() == text {
			message["content"] = parts
		}
	}
	return message
}

func (h *history) content(message wire.Object, text string) {
	switch {
	case text != "" || h.empty == ContentString:
		message["content"] = text
	case h.empty != ContentOmit:
		message["content"] = nil
	}
}

// appendCall appends a call with the extra members of its raw form, such as signatures of
// reasoning.
func appendCall(b []byte, id string, c inference.Call, raw json.RawMessage) []byte {
	name, arguments := wire.ToolName(c.Name), wire.Arguments(c.Arguments)
	if raw == nil {
		b = wire.AppendText(append(b, `{"function":{"arguments":`...), arguments)
		b = wire.AppendText(append(b, `,"name":`...), name)
		return append(wire.AppendText(append(b, `},"id":`...), id), `,"type":"function"}`...)
	}
	call, fn := wire.Object{}, wire.Object{}
	var carried, carriedFn map[string]json.RawMessage
	_ = json.Unmarshal(raw, &carried) // nil: nothing was carried
	_ = json.Unmarshal(carried["function"], &carriedFn)
	for name, value := range carried {
		if name != "index" && !loose.IsNull(value) {
			call[name] = value
		}
	}
	for name, value := range carriedFn {
		if !loose.IsNull(value) {
			fn[name] = value
		}
	}
	fn["name"], fn["arguments"] = name, arguments
	call["id"], call["type"], call["function"] = id, "function", fn
	text, _ := wire.Append(nil, call) // texts, and JSON that was decoded
	return append(b, text...)
}
