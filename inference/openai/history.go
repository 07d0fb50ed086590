package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
)

// noResult is the result of a call that has none in the request.
const noResult = "error: there is no record of this call's result"

// noReasoning is the reasoning_content of an answer that has none, for a provider that demands some.
const noReasoning = "(none recorded)"

// A history writes messages in a form that any server accepts.
type history struct {
	provider string
	profile  Profile
	ids      wireIDs
	in       []inference.Message
	reasoned bool         // every answer has reasoning_content that is not empty
	used     map[int]bool // indices in in of the results that are written
	out      encoded      // the list of messages without its end; empty: none yet
	results  encoded      // of the newest answer
	err      error
}

// renderMessages appends the list of messages to b, which must be empty. It appends nothing if there are none.
func renderMessages(b []byte, provider string, p Profile, req inference.Request) ([]byte, error) {
	in := req.Messages
	h := &history{provider: provider, profile: p, in: in, reasoned: req.Reasoned, used: map[int]bool{}, out: b,
		ids: wireIDs{format: p.IDs, taken: map[string]bool{}}}
	for i, m := range in {
		switch m.Role {
		case inference.RoleAssistant:
			h.assistant(i, m)
		case inference.RoleTool: // written after its call; without one it is left out
		case inference.RoleSystem:
			h.text("system", m.Text)
		default:
			h.text("user", m.Text)
		}
	}
	if len(h.out) > 0 {
		h.out = append(h.out, ']')
	}
	return h.out, h.err
}

// next begins a message.
func (h *history) next() {
	if len(h.out) == 0 {
		h.out = append(h.out, '[')
	} else {
		h.out = append(h.out, ',')
	}
}

func (h *history) text(role, text string) {
	if text != "" {
		h.next()
		h.out = append(appendText(append(h.out, `{"content":`...), text), `,"role":"`+role+`"}`...)
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
	if out, err := appendJSON(h.out, message); err != nil {
		h.err = err
	} else {
		h.out = out
	}
	h.out = append(h.out, h.results...)
}

// calls returns an answer's calls, and writes their results.
func (h *history) calls(at int, all []inference.Call, raw json.RawMessage) encoded {
	var rawCalls loose.List
	_ = rawCalls.UnmarshalJSON(raw)
	if len(rawCalls) != len(all) {
		rawCalls = make(loose.List, len(all))
	}
	list := encoded{'['}
	for i, c := range all {
		if i > 0 {
			list = append(list, ',')
		}
		id := h.ids.take(c.ID)
		list = appendCall(list, id, c, rawCalls[i])
		h.results = appendText(append(h.results, `,{"content":`...), h.result(at, c.ID))
		h.results = append(appendText(append(h.results, `,"role":"tool","tool_call_id":`...), id), '}')
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
func (h *history) replayed(raw map[string]json.RawMessage, text string) object {
	message := object{}
	if value := raw["extra_content"]; loose.IsObject(value) {
		message["extra_content"] = value
	}
	if h.profile.Reasoning == ReasoningNever {
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
	if h.profile.Reasoning == ReasoningRequire && message["reasoning_content"] == nil {
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

func (h *history) content(message object, text string) {
	switch {
	case text != "" || h.profile.EmptyContent == ContentString:
		message["content"] = text
	case h.profile.EmptyContent != ContentOmit:
		message["content"] = nil
	}
}

// result returns the result of the call with this id in the message at index at: the first
// unused one before another message reuses the id.
func (h *history) result(at int, id string) string {
	for i := at + 1; i < len(h.in); i++ {
		m := h.in[i]
		switch {
		case m.Role == inference.RoleTool && m.CallID == id && !h.used[i]:
			h.used[i] = true
			return m.Text
		case m.Role == inference.RoleAssistant && calls(m, id):
			return noResult
		}
	}
	return noResult
}

func calls(m inference.Message, id string) bool {
	for _, c := range m.Calls {
		if c.ID == id {
			return true
		}
	}
	return false
}

// appendCall appends a call with the extra members of its raw form, such as signatures of
// reasoning.
func appendCall(b []byte, id string, c inference.Call, raw json.RawMessage) []byte {
	name, arguments := toolName(c.Name), objectText(c.Arguments)
	if raw == nil {
		b = appendText(append(b, `{"function":{"arguments":`...), arguments)
		b = appendText(append(b, `,"name":`...), name)
		return append(appendText(append(b, `},"id":`...), id), `,"type":"function"}`...)
	}
	call, fn := object{}, object{}
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
	text, _ := appendJSON(nil, call) // texts, and JSON that was decoded
	return append(b, text...)
}

// objectText returns arguments if they are a JSON object, else an object that quotes their
// beginning.
func objectText(arguments string) string {
	trimmed := strings.TrimSpace(arguments)
	if loose.IsObject([]byte(trimmed)) {
		return strings.ToValidUTF8(trimmed, "\uFFFD")
	}
	if trimmed == "" || trimmed == "null" {
		return "{}"
	}
	runes := []rune(trimmed)
	quoted,
		_ := encode(object{"malformed_arguments": string(runes[:min(len(runes), 500)])}) //nolint:errchkjson // a string
	return string(quoted)
}

// wordID matches the call ids that Anthropic's models accept.
var wordID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// wireIDs returns unique call ids that the server accepts. The same history gives the same
// ids, which keeps prompt caches valid.
type wireIDs struct {
	format IDFormat
	taken  map[string]bool
}

func (w wireIDs) take(id string) string {
	wire := id
	for n := 1; !w.fits(wire) || w.taken[wire]; n++ {
		wire = shortID(id, n)
	}
	w.taken[wire] = true
	return wire
}

func (w wireIDs) fits(id string) bool {
	if w.format == IDWord {
		return wordID.MatchString(id)
	}
	if w.format == IDNine {
		return len(id) == 9 && strings.IndexFunc(id, func(r rune) bool { return !isAlnum(r) }) < 0
	}
	return id != "" && len(id) <= 64 && strings.IndexFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// shortID returns the nth replacement of an id: 9 letters and digits, which every server
// accepts.
func shortID(id string, n int) string {
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(id), []byte(strconv.Itoa(n))}, []byte{0}))
	s := new(big.Int).SetBytes(sum[:]).Text(36)
	return ("c" + s + "00000000")[:9]
}
