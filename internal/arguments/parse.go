package arguments

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonSpace lists the whitespace characters of JSON.
const jsonSpace = " \t\r\n"

// parseJSON strictly reads one JSON value. It refuses what encoding/json accepts
// (duplicate keys, invalid UTF-8, lone surrogates) and what Postgres does not
// store (NUL, huge numbers). Objects are map[string]any, arrays []any, numbers
// number; other values are as in encoding/json.
//
// maxDepth bounds its stack. An error is a clause of a message to the model.
func parseJSON(text string, maxDepth int) (any, error) {
	if i := firstInvalid(text); i >= 0 {
		return nil, fmt.Errorf("they are not valid UTF-8 at byte %d", i)
	}
	p := &parser{text: text, room: maxDepth}
	return p.whole()
}

// whole reads the text as one value.
func (p *parser) whole() (any, error) {
	value, err := p.value()
	if err != nil {
		return nil, err
	}
	if p.skipSpace(); p.at < len(p.text) {
		return nil, p.errorf("there is text after the end of the JSON value")
	}
	return value, nil
}

// firstInvalid returns the index of the first byte that is not valid UTF-8, or -1.
func firstInvalid(text string) int {
	if utf8.ValidString(text) {
		return -1
	}
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD") {
			return i
		}
	}
	return -1
}

type parser struct {
	text string
	at   int  // index of the next byte
	room int  // how many more levels may be opened
	nul  bool // strings may have NUL characters
}

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("%s (byte %d)", fmt.Sprintf(format, args...), p.at)
}

func (p *parser) skipSpace() {
	for p.at < len(p.text) && strings.IndexByte(jsonSpace, p.text[p.at]) >= 0 {
		p.at++
	}
}

// next skips whitespace and returns the byte after it, or 0 at the end.
func (p *parser) next() byte {
	p.skipSpace()
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

var literals = map[string]any{"true": true, "false": false, "null": nil}

func (p *parser) value() (any, error) {
	switch b := p.next(); {
	case b == '{':
		return nested(p, p.object)
	case b == '[':
		return nested(p, p.array)
	case b == '"':
		return p.str()
	case b == '-' || isDigit(b):
		return p.number()
	case p.at == len(p.text):
		return nil, p.errorf("the JSON ends too early")
	}
	for literal, value := range literals {
		if strings.HasPrefix(p.text[p.at:], literal) {
			p.at += len(literal)
			return value, nil
		}
	}
	return nil, p.errorf("a JSON value cannot start with %s", p.quoteNext())
}

func (p *parser) quoteNext() string {
	if p.at == len(p.text) {
		return "the end"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return strconv.QuoteRune(r)
}

func nested[T any](p *parser, read func() (T, error)) (any, error) {
	if p.room == 0 {
		return nil, p.errorf("objects and arrays are nested more than %d deep", MaxDepth)
	}
	p.room--
	p.at++
	value, err := read()
	p.room++
	return value, err
}

func (p *parser) object() (map[string]any, error) {
	object := map[string]any{}
	if p.next() == '}' {
		p.at++
		return object, nil
	}
	for {
		if p.next() != '"' {
			return nil, p.errorf("a key in double quotes was expected, not %s", p.quoteNext())
		}
		if err := p.member(object); err != nil {
			return nil, err
		}
		if more, err := p.more('}'); !more {
			return object, err
		}
	}
}

func (p *parser) member(object map[string]any) error {
	key, err := p.str()
	if err != nil {
		return err
	}
	if _, twice := object[key]; twice {
		return p.errorf("the key %q is there twice", clip(key, maxKeyChars))
	}
	if p.next() != ':' {
		return p.errorf("a colon was expected after the key %q, not %s", clip(key, maxKeyChars), p.quoteNext())
	}
	p.at++
	object[key], err = p.value()
	return err
}

func (p *parser) array() ([]any, error) {
	items := []any{}
	if p.next() == ']' {
		p.at++
		return items, nil
	}
	for {
		item, err := p.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if more, err := p.more(']'); !more {
			return items, err
		}
	}
}

// more reads a comma or the end byte, and reports whether it was a comma.
func (p *parser) more(end byte) (bool, error) {
	switch p.next() {
	case ',':
		p.at++
		return true, nil
	case end:
		p.at++
		return false, nil
	}
	if p.at == len(p.text) {
		return false, p.errorf("the JSON ends too early")
	}
	return false, p.errorf("a comma or %q was expected, not %s", string(end), p.quoteNext())
}

var errOpenString = errors.New("a string has no end; was the call cut off?")

func (p *parser) str() (string, error) {
	p.at++ // the quote
	start := p.at
	var b strings.Builder
	for {
		i := strings.IndexFunc(p.text[p.at:], func(r rune) bool { return r == '"' || r == '\\' || r < ' ' })
		if i < 0 {
			return "", errOpenString
		}
		p.at += i
		switch p.text[p.at] {
		case '"':
			b.WriteString(p.text[start:p.at])
			p.at++
			return b.String(), nil
		case '\\':
			b.WriteString(p.text[start:p.at])
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
			start = p.at
		default:
			return "", p.errorf("a string holds the control character %s as it is; write it as an escape, as \\n",
				p.quoteNext())
		}
	}
}

var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads an escape sequence.
func (p *parser) escape() (rune, error) {
	if p.at+1 >= len(p.text) {
		return 0, errOpenString
	}
	if r, ok := escapes[p.text[p.at+1]]; ok {
		p.at += 2
		return r, nil
	}
	r, ok := p.hexEscape()
	switch {
	case !ok:
		return 0, p.errorf("a string holds a backslash that begins no JSON escape; write it as \\\\")
	case r == 0 && !p.nul:
		return 0, p.errorf("a string holds the NUL character (\\u0000), which cannot be stored")
	case !utf16.IsSurrogate(r):
		return r, nil
	}
	low, _ := p.hexEscape()
	if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
		return both, nil
	}
	return 0, p.errorf("a string holds half of a surrogate pair (\\u%04x), which is no character", r)
}

// hexEscape reads \uXXXX. false: something else comes next.
func (p *parser) hexEscape() (rune, bool) {
	rest := p.text[p.at:]
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range []byte(rest[2:6]) {
		digit := strings.IndexByte("0123456789abcdef", c|0x20)
		if digit < 0 || c < '0' {
			return 0, false
		}
		r = r<<4 | rune(digit) //nolint:gosec // 0 to 15
	}
	p.at += 6
	return r, true
}
