package loose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A Fragment is a piece of a streamed text. JSON may write a character above U+FFFF as two
// escapes, a surrogate pair, and a provider may send the halves in two chunks. encoding/json
// replaces a half by U+FFFD. A Fragment contains it instead, as the three bytes that UTF-8
// would have for it, until a Growing text joins the halves.
type Fragment string

// UnmarshalJSON never fails.
func (f *Fragment) UnmarshalJSON(data []byte) error {
	*f = FragmentOf(data)
	return nil
}

// FragmentOf decodes the same values as Scalar.
func FragmentOf(data []byte) Fragment {
	if len(data) < 2 || data[0] != '"' || !bytes.Contains(data, []byte(`\u`)) {
		return Fragment(Scalar(data))
	}
	body := data[1 : len(data)-1]
	var out []byte
	from := 0 // of what is not decoded yet
	for i := 0; i < len(body); {
		if body[i] != '\\' {
			i++
			continue
		}
		unit, ok := escapedUnit(body[i:])
		switch {
		case !ok:
			i += len(`\n`)
			continue
		case !utf16.IsSurrogate(unit):
			i += escapeBytes
			continue
		}
		if low, _ := escapedUnit(body[i+escapeBytes:]); utf16.DecodeRune(unit, low) != utf8.RuneError {
			i += 2 * escapeBytes
			continue
		}
		out = append(out, unescape(body[from:i])...)
		out = append(out, 0xE0|byte(unit>>12&0x0F), 0x80|byte(unit>>6&0x3F), 0x80|byte(unit&0x3F))
		i += escapeBytes
		from = i
	}
	return Fragment(append(out, unescape(body[from:])...))
}

const escapeBytes = len(`\u0000`)

// escapedUnit decodes an escape \uXXXX at the beginning of data. ok is false if there is none.
func escapedUnit(data []byte) (rune, bool) {
	if len(data) < escapeBytes || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(data[2:escapeBytes]), 16, 16)
	return rune(unit), err == nil
}

func unescape(body []byte) string {
	return Scalar(append(append([]byte{'"'}, body...), '"'))
}

// A Growing text joins fragments. Its String is valid UTF-8.
type Growing struct {
	strings.Builder

	half  string                 // the first half of a pair at the end of the last fragment
	Alone func(half rune) string // returns the text of a half without the other; nil: U+FFFD
}

// Add appends a fragment, and returns the text that was added.
func (g *Growing) Add(f Fragment) string {
	if f == "" {
		return ""
	}
	text := g.half + string(f)
	g.half = ""
	if at := len(text) - halfBytes; at >= 0 && isHalf(text[at:]) && text[at+1] < 0xB0 {
		text, g.half = text[:at], text[at:]
	}
	return g.write(text)
}

// End appends a half that was held back, and returns the text that was added.
func (g *Growing) End() string {
	text := g.half
	g.half = ""
	return g.write(text)
}

func (g *Growing) write(text string) string {
	before := g.Len()
	for {
		at := nextHalf(text)
		g.WriteString(text[:at])
		if text = text[at:]; text == "" {
			return g.String()[before:]
		}
		half := halfRune(text)
		text = text[halfBytes:]
		if isHalf(text) {
			if both := utf16.DecodeRune(half, halfRune(text)); both != utf8.RuneError {
				g.WriteRune(both)
				text = text[halfBytes:]
				continue
			}
		}
		if g.Alone != nil {
			g.WriteString(g.Alone(half))
		} else {
			g.WriteRune(utf8.RuneError)
		}
	}
}

const halfBytes = 3

func isHalf(text string) bool { return len(text) >= halfBytes && text[0] == 0xED && text[1] >= 0xA0 }

// nextHalf returns the position of the next half, or the length of the text.
func nextHalf(text string) int {
	for at := 0; ; at++ {
		i := strings.IndexByte(text[at:], 0xED)
		if i < 0 {
			return len(text)
		}
		if at += i; isHalf(text[at:]) {
			return at
		}
	}
}

func halfRune(text string) rune {
	return rune(text[0]&0x0F)<<12 | rune(text[1]&0x3F)<<6 | rune(text[2]&0x3F)
}

// Escaped returns half a surrogate pair as a JSON escape. The check of a call's arguments
// refuses it.
func Escaped(half rune) string { return fmt.Sprintf(`\u%04x`, half) }

// Flatten returns the text and the reasoning of a part.
func Flatten(part json.RawMessage) (said, thought Fragment) {
	if !IsObject(part) {
		return FragmentOf(part), ""
	}
	var p struct {
		Type     Text            `json:"type"`
		Text     Fragment        `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if json.Unmarshal(part, &p) != nil {
		return "", ""
	}
	if p.Type != "thinking" && p.Type != "reasoning" {
		return p.Text, ""
	}
	var inner []json.RawMessage
	if json.Unmarshal(p.Thinking, &inner) != nil {
		return "", p.Text + FragmentOf(bytes.TrimSpace(p.Thinking))
	}
	var all strings.Builder
	for _, item := range inner {
		said, _ := Flatten(item)
		all.WriteString(string(said))
	}
	return "", p.Text + Fragment(all.String())
}
