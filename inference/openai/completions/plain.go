package completions

import (
	"encoding/json"
	"unicode/utf8"
)

// Bounds of a plain chunk. They imply the limits of jsonlimit.ModelMessage, so that a plain chunk needs no check: each
// of its values and names needs 2 bytes, so there are at most 32,768, and each of its bytes begins at most one, for
// which package jsonlimit counts less than 512 bytes of memory.
const (
	maxPlain  = 64 << 10 // bytes
	maxLevels = 16       // of nested objects and arrays in a value of any type
	maxDigits = 15       // of a count: the library reads numbers below 2^53 exactly
)

// A plain reads plain chunks: those with the members that servers send with the pieces of an answer, in their usual
// types. It makes the same value of them as chunkOf does of the library's chunk, without reflection. It leaves
// everything else to the library, also what is odd in any way: a member that it does not know, or whose name has an
// escape or another case, a member that comes twice, a count with a fraction, or an escape in a name or an id.
type plain struct {
	data []byte
	at   int
}

// read reads a chunk into c, whose slices it uses again. It reports whether data is a plain chunk.
func (p *plain) read(data []byte, c *chunk) bool {
	*c = chunk{choices: c.choices[:0]}
	if len(data) > maxPlain || !utf8.Valid(data) {
		return false
	}
	p.data, p.at = data, 0
	if !object(p, chunkMembers, c) {
		return false
	}
	p.space()
	return p.at == len(p.data)
}

// A member is a member of an object of type T.
type member[T any] struct {
	name string
	read func(p *plain, into *T) bool // reports whether the value is plain; nil: it says nothing to an answer
}

var chunkMembers = []member[chunk]{
	{"id", func(p *plain, c *chunk) bool { return p.simple(&c.id) }},
	{"model", func(p *plain, c *chunk) bool { return p.simple(&c.model) }},
	{"choices", func(p *plain, c *chunk) bool { return p.list(func() bool { return p.choice(c) }) }},
	{"usage", func(p *plain, c *chunk) bool {
		if p.null() {
			return true
		}
		c.usage.given = true
		return object(p, usageMembers, &c.usage)
	}},
	{"object", nil}, {"created", nil}, {"system_fingerprint", nil}, {"service_tier", nil},
	{"obfuscation", nil}, {"provider", nil}, {"prompt_token_ids", nil}, {"timings", nil},
	{"prompt_filter_results", nil},
}

var choiceMembers = []member[choice]{
	{"index", func(p *plain, _ *choice) bool {
		var n int64
		return p.count(&n) && n == 0
	}},
	{"delta", func(p *plain, c *choice) bool {
		c.whole = false
		return object(p, deltaMembers, &c.delta)
	}},
	{"finish_reason", func(p *plain, c *choice) bool { return p.name(&c.finish) }},
	{"native_finish_reason", func(p *plain, c *choice) bool { return p.raw(&c.native) }},
	{"logprobs", nil}, {"stop_reason", nil}, {"token_ids", nil}, {"content_filter_results", nil},
}

var deltaMembers = []member[message]{
	{"content", func(p *plain, m *message) bool { return p.text(&m.content) }},
	{"role", nil},
	{"tool_calls", func(p *plain, m *message) bool {
		return p.null() || p.list(func() bool {
			m.calls = append(m.calls, piece{})
			return object(p, callMembers, &m.calls[len(m.calls)-1])
		})
	}},
	{"refusal", func(p *plain, m *message) bool { return p.text(&m.refusal) }},
	{"reasoning_content", func(p *plain, m *message) bool { return p.raw(&m.reasoningContent) }},
	{"reasoning", func(p *plain, m *message) bool { return p.raw(&m.reasoning) }},
	{"reasoning_details", func(p *plain, m *message) bool { return p.raw(&m.reasoningDetails) }},
	{"function_call", func(p *plain, _ *message) bool { return p.null() }},
}

var callMembers = []member[piece]{
	{"index", func(p *plain, c *piece) bool {
		var n int64
		ok := p.count(&n)
		c.index = index{int(n), true}
		return ok
	}},
	{"id", func(p *plain, c *piece) bool { return p.name(&c.id) }},
	{"type", nil},
	{"function", func(p *plain, c *piece) bool { return object(p, functionMembers, c) }},
}

var functionMembers = []member[piece]{
	{"name", func(p *plain, c *piece) bool { return p.name(&c.name) }},
	{"arguments", func(p *plain, c *piece) bool {
		var arguments json.RawMessage
		ok := p.text(&arguments)
		c.setArguments(arguments)
		return ok
	}},
}

var usageMembers = []member[usage]{
	{"prompt_tokens", func(p *plain, u *usage) bool { return p.count(&u.input) }},
	{"completion_tokens", func(p *plain, u *usage) bool { return p.count(&u.output) }},
	{"prompt_tokens_details", func(p *plain, u *usage) bool { return p.null() || object(p, promptMembers, u) }},
	{"completion_tokens_details", func(p *plain, u *usage) bool { return p.null() || object(p, completionMembers, u) }},
	{"prompt_cache_hit_tokens", func(p *plain, u *usage) bool { return p.raw(&u.cacheHit) }},
	{"cost", func(p *plain, u *usage) bool { return p.raw(&u.cost) }},
	{"total_tokens", nil}, {"prompt_cache_miss_tokens", nil}, {"cost_details", nil}, {"is_byok", nil},
}

var promptMembers = []member[usage]{
	{"cached_tokens", func(p *plain, u *usage) bool { return p.count(&u.cached) }},
	{"cache_write_tokens", func(p *plain, u *usage) bool { return p.count(&u.cacheWrite) }},
	{"audio_tokens", nil}, {"image_tokens", nil}, {"text_tokens", nil}, {"video_tokens", nil},
}

var completionMembers = []member[usage]{
	{"reasoning_tokens", func(p *plain, u *usage) bool { return p.count(&u.reasoning) }},
	{"audio_tokens", nil}, {"image_tokens", nil}, {"text_tokens", nil},
	{"accepted_prediction_tokens", nil}, {"rejected_prediction_tokens", nil},
}

// choice reads the one choice of a chunk.
func (p *plain) choice(c *chunk) bool {
	c.choices = append(c.choices, choice{whole: true})
	first := &c.choices[0]
	return len(c.choices) == 1 && object(p, choiceMembers, first) && !first.whole
}

// object reads an object that has only members of a list, each at most once.
func object[T any](p *plain, members []member[T], into *T) bool {
	if !p.take('{') {
		return false
	}
	if p.take('}') {
		return true
	}
	for seen := 0; ; { // a bit for each member
		i, ok := memberAt(p, members)
		if !ok || seen&(1<<i) != 0 {
			return false
		}
		seen |= 1 << i
		if read := members[i].read; read != nil {
			ok = read(p, into)
		} else {
			ok = p.value(maxLevels)
		}
		if !ok || !p.take(',') {
			return ok && p.take('}')
		}
	}
}

// memberAt reads the name of a member, up to its value. It returns the number of the member in a list.
func memberAt[T any](p *plain, members []member[T]) (i int, ok bool) {
	name, ok := p.unescaped()
	if !ok || !p.take(':') {
		return 0, false
	}
	for i := range members {
		if string(name) == members[i].name {
			return i, true
		}
	}
	return 0, false
}

// list reads an array. item reads an element.
func (p *plain) list(item func() bool) bool {
	if !p.take('[') {
		return false
	}
	if p.take(']') {
		return true
	}
	for item() {
		if !p.take(',') {
			return p.take(']')
		}
	}
	return false
}

// name reads a string without escapes, or null, for which the text stays empty.
func (p *plain) name(into *string) bool {
	var name []byte
	ok := p.simple(&name)
	*into = string(name)
	return ok
}

// simple is name, but points to the text in the chunk.
func (p *plain) simple(into *[]byte) bool {
	if p.null() {
		return true
	}
	text, ok := p.unescaped()
	*into = text
	return ok
}

// text reads a string or null as it stands there.
func (p *plain) text(into *json.RawMessage) bool {
	ok := p.raw(into)
	return ok && ((*into)[0] == '"' || (*into)[0] == 'n')
}

// raw reads any value as it stands there.
func (p *plain) raw(into *json.RawMessage) bool {
	p.space()
	from := p.at
	ok := p.value(maxLevels)
	*into = p.data[from:p.at]
	return ok
}

// value reads any value with at most a number of levels of objects and arrays.
func (p *plain) value(levels int) bool {
	p.space()
	switch {
	case p.at == len(p.data):
		return false
	case p.data[p.at] == '"':
		_, ok := p.string()
		return ok
	case p.data[p.at] == '[':
		return levels > 0 && p.list(func() bool { return p.value(levels - 1) })
	case p.data[p.at] == '{':
		return levels > 0 && p.members(levels-1)
	}
	return p.null() || p.word("true") || p.word("false") || p.number()
}

// members reads an object with any members, whose values have at most a number of levels.
func (p *plain) members(levels int) bool {
	p.at++
	if p.take('}') {
		return true
	}
	for {
		p.space()
		if _, ok := p.string(); !ok || !p.take(':') || !p.value(levels) {
			return false
		}
		if !p.take(',') {
			return p.take('}')
		}
	}
}

// null reads null, if it comes next.
func (p *plain) null() bool {
	p.space()
	return p.word("null")
}

// word reads a word, if it comes next.
func (p *plain) word(word string) bool {
	if len(p.data)-p.at < len(word) || string(p.data[p.at:p.at+len(word)]) != word {
		return false
	}
	p.at += len(word)
	return true
}

// count reads a number without a sign, a fraction and an exponent.
func (p *plain) count(into *int64) bool {
	p.space()
	from := p.at
	if digits := p.digits(); digits == 0 || digits > maxDigits || digits > 1 && p.data[from] == '0' {
		return false
	}
	for _, digit := range p.data[from:p.at] {
		*into = *into*10 + int64(digit-'0')
	}
	return true
}

// digits reads digits, and returns their number.
func (p *plain) digits() (n int) {
	for p.at < len(p.data) && '0' <= p.data[p.at] && p.data[p.at] <= '9' {
		p.at++
		n++
	}
	return n
}

// number reads a number.
func (p *plain) number() bool {
	p.word("-")
	from := p.at
	if digits := p.digits(); digits == 0 || digits > 1 && p.data[from] == '0' {
		return false
	}
	if p.word(".") && p.digits() == 0 {
		return false
	}
	if p.word("e") || p.word("E") {
		if !p.word("+") {
			p.word("-")
		}
		return p.digits() > 0
	}
	return true
}

// unescaped reads a string without escapes, and returns its text.
func (p *plain) unescaped() ([]byte, bool) {
	p.space()
	from := p.at + 1
	escaped, ok := p.string()
	if escaped || !ok {
		return nil, false
	}
	return p.data[from : p.at-1], true
}

// string reads a string, if it comes next. escaped reports whether it has escapes.
func (p *plain) string() (escaped, ok bool) {
	if p.at == len(p.data) || p.data[p.at] != '"' {
		return false, false
	}
	for i := p.at + 1; i < len(p.data); i++ {
		switch b := p.data[i]; {
		case b == '"':
			p.at = i + 1
			return escaped, true
		case b < ' ':
			return escaped, false
		case b == '\\':
			n := escapeLength(p.data[i:])
			if n == 0 {
				return true, false
			}
			escaped = true
			i += n - 1
		}
	}
	return escaped, false
}

// escapeLength returns the number of bytes of the escape at the beginning of data; 0: it is not valid.
func escapeLength(data []byte) int {
	const unicode = len(`\u0000`)
	if len(data) < len(`\n`) {
		return 0
	}
	switch data[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return len(`\n`)
	case 'u':
		if len(data) >= unicode && isHex(data[2:unicode]) {
			return unicode
		}
	}
	return 0
}

func isHex(digits []byte) bool {
	for _, b := range digits {
		if (b < '0' || b > '9') && (b|0x20 < 'a' || b|0x20 > 'f') {
			return false
		}
	}
	return true
}

// take reads a byte after white space, if it comes next.
func (p *plain) take(b byte) bool {
	p.space()
	if p.at == len(p.data) || p.data[p.at] != b {
		return false
	}
	p.at++
	return true
}

func (p *plain) space() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}
