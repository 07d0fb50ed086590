// Package loose decodes JSON fields of any type, because a field of the wrong type must not make
// the whole answer unusable.
package loose

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Text is a string. It decodes a number or a boolean as its JSON text, and any other value as
// "".
type Text string

// UnmarshalJSON never fails.
func (t *Text) UnmarshalJSON(data []byte) error {
	*t = Text(Scalar(data))
	return nil
}

// Scalar returns the value that a Text decodes from data.
func Scalar(data []byte) string {
	switch {
	case len(data) == 0 || data[0] == 'n' || data[0] == '{' || data[0] == '[':
		return ""
	case data[0] != '"':
		return string(data)
	}
	if s, ok := simple(data); ok {
		return s
	}
	return unquote(data)
}

// unquote decodes any string; "" if data is not one. It is apart from Scalar because its variable is always allocated.
func unquote(data []byte) string {
	var s string
	if json.Unmarshal(data, &s) != nil {
		return ""
	}
	return s
}

// simple decodes a string in valid UTF-8 whose escapes have one character, as json.Unmarshal would: most strings are
// such, and it takes a fraction of the time. ok is false if data is not one.
func simple(data []byte) (text string, ok bool) {
	if len(data) < len(`""`) || data[0] != '"' || data[len(data)-1] != '"' || !utf8.Valid(data) {
		return "", false
	}
	body := data[1 : len(data)-1]
	at := 0
	for at < len(body) && body[at] != '\\' {
		if body[at] < ' ' || body[at] == '"' {
			return "", false
		}
		at++
	}
	if at == len(body) {
		return string(body), true
	}
	return unescaped(body, at)
}

// unescaped returns the text of a string's body, whose first escape is at a position.
func unescaped(body []byte, at int) (text string, ok bool) {
	var out strings.Builder
	out.Grow(len(body))
	out.Write(body[:at])
	for ; at < len(body); at++ {
		b := body[at]
		switch {
		case b < ' ' || b == '"':
			return "", false
		case b == '\\':
			if at++; at == len(body) || escapes[body[at]] == 0 {
				return "", false
			}
			b = escapes[body[at]]
		}
		out.WriteByte(b)
	}
	return out.String(), true
}

// escapes holds the characters that escapes of one character stand for; 0: there is no such escape.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// A Count is a number, or a numeric string, from 0 to below 2^53, without its fraction. It
// decodes any other value as 0.
type Count int64

// UnmarshalJSON never fails.
func (c *Count) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(Scalar(data), 64)
	if err != nil || !(f >= 0 && f < 1<<53) {
		f = 0
	}
	*c = Count(f)
	return nil
}

// A List holds the objects of an array. It decodes a single object as a list of one, and any
// other value as an empty list.
type List []json.RawMessage

// UnmarshalJSON never fails.
func (l *List) UnmarshalJSON(data []byte) error {
	*l = nil
	if len(data) == 0 {
		return nil
	}
	if IsObject(data) {
		*l = List{bytes.Clone(data)}
		return nil
	}
	var all []json.RawMessage
	if json.Unmarshal(data, &all) == nil {
		for _, item := range all {
			if IsObject(item) {
				*l = append(*l, item)
			}
		}
	}
	return nil
}

// IsObject reports whether data is a valid JSON object.
func IsObject(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) > 0 && data[0] == '{' && json.Valid(data)
}

// IsNull reports whether data is empty or null.
func IsNull(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) == 0 || string(data) == "null"
}

// Decimal returns a JSON number or numeric string from 0 to 1e15 without an exponent, and "" for
// any other value.
func Decimal(data json.RawMessage) string {
	s := Scalar(data)
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || f < 0 || f > 1e15:
		return ""
	case strings.ContainsAny(s, "eExX_pPiInN+"):
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return s
}
