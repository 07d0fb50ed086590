// Package responsesbody writes the bodies of requests of OpenAI's Responses API. The requests are stateless: the
// server stores nothing, so each has the whole conversation, with the reasoning of earlier answers encrypted.
//
// What is written of a message depends on it and on those before it alone. A request whose messages are those of
// another one and more at their end begins with the same items, which servers find in their caches.
package responsesbody

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/wire"
)

// Own lists the fields of a body that options must not set: the client sets them, or they name what a server stores.
var Own = []string{
	"input", "instructions", "store", "include", "stream", "previous_response_id", "conversation", "background",
}

// A Form says how a request is written.
type Form struct {
	Provider    string // whose answers are sent back as they came
	Stream      bool
	NoReasoning bool // send no reasoning back, and ask for none that could be
	NoUser      bool // omit the label of the user
	NoCalls     bool // no tool may be called
	Extra       map[string]json.RawMessage
	Tools       [][]byte // their declarations
	IDFormat    wire.IDFormat
}

// maxCacheKey is the maximum length of a prompt_cache_key.
const maxCacheKey = 64

// Render returns the body of a request. ok is false if it has no item.
func Render(f Form, req inference.Request) (body wire.Body, ok bool) {
	h := write(historyForm{f.Provider, f.NoReasoning, f.IDFormat}, req)
	if h.isEmpty() {
		return wire.Body{}, false
	}
	fields := f.fields(req)
	fields["input"] = []byte("]") // its end
	if first := req.Messages[0]; first.Role == inference.RoleSystem && first.Text != "" {
		fields["instructions"] = wire.AppendText(nil, first.Text)
	}
	b := []byte{'{'}
	input := 0 // where its items belong
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(wire.AppendText(b, name), ':')
		if name == "input" {
			input = len(b)
		}
		b = append(b, fields[name]...)
	}
	b = append(b, '}')
	return h.grow(req, b[:input]).Body(b[input:]), true
}

// itemBytes is the approximate size of an item without its text, in bytes.
const itemBytes = 100

// fields returns the fields of a body other than input and instructions.
func (f Form) fields(req inference.Request) map[string][]byte {
	fields := map[string][]byte{"model": wire.AppendText(nil, req.Model), "store": []byte("false")}
	if !f.NoReasoning {
		fields["include"] = []byte(`["reasoning.encrypted_content"]`)
	}
	if f.Stream {
		fields["stream"] = []byte("true")
	}
	if len(f.Tools) > 0 {
		fields["tools"] = f.tools()
		if f.NoCalls {
			fields["tool_choice"] = []byte(`"none"`)
		}
	}
	if req.MaxOutputTokens > 0 {
		fields["max_output_tokens"] = strconv.AppendInt(nil, int64(req.MaxOutputTokens), 10)
	}
	if req.Temperature != nil {
		fields["temperature"] = strconv.AppendFloat(nil, *req.Temperature, 'g', -1, 64)
	}
	if req.User != "" && !f.NoUser {
		fields["safety_identifier"] = wire.AppendText(nil, req.User)
	}
	if key := req.CacheKey; key != "" {
		if len(key) > maxCacheKey {
			sum := sha256.Sum256([]byte(key))
			key = hex.EncodeToString(sum[:])
		}
		fields["prompt_cache_key"] = wire.AppendText(nil, key)
	}
	for name, value := range f.Extra {
		if _, taken := fields[name]; !taken && !slices.Contains(Own, name) && json.Valid(value) {
			fields[name] = appendCompact(nil, value)
		}
	}
	return fields
}

// tools returns the list of tools.
func (f Form) tools() []byte {
	list := []byte{'['}
	for i, tool := range f.Tools {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, tool...)
	}
	return append(list, ']')
}
