// Package loose reads a field of the wire whatever its JSON type is: one field of
// the wrong type must not cost the whole answer.
package loose

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// A Text is a string; a number or a boolean is taken as written, anything else
// as empty.
type Text string

// UnmarshalJSON never fails.
func (t *Text) UnmarshalJSON(data []byte) error {
	*t = Text(Scalar(data))
	return nil
}

// Scalar returns what a Text reads.
func Scalar(data []byte) string {
	var s string
	switch {
	case len(data) == 0 || data[0] == 'n' || data[0] == '{' || data[0] == '[':
		return ""
	case data[0] != '"':
		return string(data)
	case json.Unmarshal(data, &s) != nil:
		return ""
	}
	return s
}

// A Count is a whole number that is not negative; anything else is 0.
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

// A List is the objects of an array, without nulls; a single object counts as
// one, anything else as none.
type List []json.RawMessage

// UnmarshalJSON never fails.
func (l *List) UnmarshalJSON(data []byte) error {
	*l = nil
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

// Decimal is a JSON number or numeric string without an exponent; empty for
// anything else.
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
