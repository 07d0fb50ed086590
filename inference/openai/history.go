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

// noResult answers a call whose result the history does not hold.
const noResult = "error: there is no record of this call's result"

// A history writes messages so that any server can replay them.
type history struct {
	provider string
	profile  Profile
	ids      wireIDs
	in       []inference.Message
	used     map[int]bool // results that were written, by their place in in
	out      []object
}

func renderMessages(provider string, p Profile, in []inference.Message) []object {
	h := &history{provider: provider, profile: p, in: in, used: map[int]bool{}, ids: wireIDs{format: p.IDs, taken: map[string]bool{}}}
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
	return h.out
}

func (h *history) text(role, text string) {
	if text != "" {
		h.out = append(h.out, object{"role": role, "content": text})
	}
}

// assistant writes an answer, and the result of each of its calls after it.
func (h *history) assistant(at int, m inference.Message) {
	if m.Text == "" && len(m.Calls) == 0 {
		return
	}
	raw := h.raw(m)
	message := h.replayed(raw, m.Text)
	message["role"] = "assistant"
	if _, ok := message["content"]; !ok {
		h.content(message, m.Text)
	}
	h.out = append(h.out, message)
	if len(m.Calls) == 0 {
		return
	}
	var rawCalls loose.List
	_ = rawCalls.UnmarshalJSON(raw["tool_calls"])
	if len(rawCalls) != len(m.Calls) {
		rawCalls = make(loose.List, len(m.Calls))
	}
	calls := make([]object, 0, len(m.Calls))
	for i, c := range m.Calls {
		id := h.ids.take(c.ID)
		calls = append(calls, renderCall(id, c, rawCalls[i]))
		h.out = append(h.out, object{"role": "tool", "tool_call_id": id, "content": h.result(at, c.ID)})
	}
	message["tool_calls"] = calls
}

// raw is the message as its provider sent it, for that provider alone.
func (h *history) raw(m inference.Message) map[string]json.RawMessage {
	var raw map[string]json.RawMessage
	if m.RawProvider == "" || m.RawProvider != h.provider || json.Unmarshal(m.Raw, &raw) != nil {
		return nil
	}
	return raw
}

// replayed is what the provider gets back of its own answer beside calls: its
// reasoning, and its content where that came in parts and still says text.
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

// result finds the result of the call with this id of the message at a place:
// the first that nobody took, before another message reuses the id.
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

// renderCall writes a call over what the wire carried with it, such as the
// signatures of its reasoning.
func renderCall(id string, c inference.Call, raw json.RawMessage) object {
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
	fn["name"], fn["arguments"] = toolName(c.Name), objectText(c.Arguments)
	call["id"], call["type"], call["function"] = id, "function", fn
	return call
}

// objectText is arguments as a JSON object: as they are where they are one,
// else an object that quotes the beginning of what stood there.
func objectText(arguments string) string {
	trimmed := strings.TrimSpace(arguments)
	if loose.IsObject([]byte(trimmed)) {
		return strings.ToValidUTF8(trimmed, "\uFFFD")
	}
	if trimmed == "" || trimmed == "null" {
		return "{}"
	}
	runes := []rune(trimmed)
	quoted, _ := encode(object{"malformed_arguments": string(runes[:min(len(runes), 500)])}) //nolint:errchkjson // a string
	return string(quoted)
}

// wordID is what Anthropic's models take for the id of a call.
var wordID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// wireIDs gives each call an id that fits the server and no other call has.
// The same ids come out for the same history, so that prompt caches hold.
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

// shortID is the nth id made from id: 9 letters and digits, which every server
// takes.
func shortID(id string, n int) string {
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(id), []byte(strconv.Itoa(n))}, []byte{0}))
	s := new(big.Int).SetBytes(sum[:]).Text(36)
	return ("c" + s + "00000000")[:9]
}
