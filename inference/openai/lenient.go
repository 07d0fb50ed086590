package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// The types of this file decode a field of any JSON type, so that one field of the wrong type
// does not make the whole answer unusable.

// text is a string, or a number or boolean as it is written. Other values are empty.
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	*t = text(scalar(data))
	return nil
}

func scalar(data []byte) string {
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

// count is a whole number that is not negative. Other values are 0.
type count int64

func (c *count) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(scalar(data), 64)
	if err != nil || !(f >= 0 && f < 1<<53) {
		f = 0
	}
	*c = count(f)
	return nil
}

// index is a whole number, if there is one.
type index struct {
	n  int
	ok bool
}

func (i *index) UnmarshalJSON(data []byte) error {
	n, err := strconv.Atoi(scalar(data))
	*i = index{n, err == nil}
	return nil
}

// list holds the objects of an array, or a single object. Other values are empty.
type list []json.RawMessage

func (l *list) UnmarshalJSON(data []byte) error {
	*l = nil
	if isObject(data) {
		*l = list{bytes.Clone(data)}
		return nil
	}
	var all []json.RawMessage
	if json.Unmarshal(data, &all) == nil {
		for _, item := range all {
			if isObject(item) {
				*l = append(*l, item)
			}
		}
	}
	return nil
}

func isObject(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) > 0 && data[0] == '{' && json.Valid(data)
}

func isNull(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) == 0 || string(data) == "null"
}

// decimal returns a JSON number, or a string with a number, without an exponent. Other values
// give an empty text.
func decimal(data json.RawMessage) string {
	s := scalar(data)
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || f < 0 || f > 1e15:
		return ""
	case strings.ContainsAny(s, "eExX_pPiInN+"):
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return s
}
