package arguments

import (
	"maps"
	"slices"
	"strconv"
)

// appendCanonical appends the canonical JSON of a value that parseJSON returned.
func appendCanonical(to []byte, value any) []byte {
	switch v := value.(type) {
	case map[string]any:
		return appendObject(to, v)
	case []any:
		to = append(to, '[')
		for i, item := range v {
			if i > 0 {
				to = append(to, ',')
			}
			to = appendCanonical(to, item)
		}
		return append(to, ']')
	case string:
		return appendString(to, v)
	case number:
		return append(to, v...)
	case bool:
		return strconv.AppendBool(to, v)
	}
	return append(to, "null"...)
}

func appendObject(to []byte, object map[string]any) []byte {
	to = append(to, '{')
	for i, key := range sortedKeys(object) {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendString(to, key), ':')
		to = appendCanonical(to, object[key])
	}
	return append(to, '}')
}

func sortedKeys(object map[string]any) []string {
	return slices.Sorted(maps.Keys(object))
}

var shortEscapes = map[byte]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

// appendString appends a JSON string. It escapes only what JSON requires.
func appendString(to []byte, text string) []byte {
	const hexDigits = "0123456789abcdef"
	to = append(to, '"')
	for i := range len(text) {
		b := text[i]
		short, ok := shortEscapes[b]
		switch {
		case ok:
			to = append(to, '\\', short)
		case b >= ' ':
			to = append(to, b)
		default:
			to = append(to, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
	}
	return append(to, '"')
}

// kindOf returns the type of a value with its article, as in "an object".
func kindOf(value any) string {
	switch value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	case string:
		return "a string"
	case number:
		return "a number"
	case bool:
		return "a boolean"
	}
	return "null"
}
