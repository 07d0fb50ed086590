package loose

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Members yields the names and values of an object, in order. It yields nothing for another
// value. data must be empty or valid JSON without space around it. Names and values may be
// parts of data.
func Members(data []byte) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		if len(data) == 0 || data[0] != '{' {
			return
		}
		for i := pastSpace(data, 1); data[i] == '"'; {
			end := pastValue(data, i)
			name := data[i+1 : end-1]
			if bytes.IndexByte(name, '\\') >= 0 {
				name = []byte(Scalar(data[i:end]))
			}
			i = pastSpace(data, pastSpace(data, end)+1) // after the colon
			end = pastValue(data, i)
			if !yield(name, data[i:end:end]) {
				return
			}
			if i = pastSpace(data, end); data[i] == ',' {
				i = pastSpace(data, i+1)
			}
		}
	}
}

// Elements yields the elements of an array, like Members.
func Elements(data []byte) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		if len(data) == 0 || data[0] != '[' {
			return
		}
		for i := pastSpace(data, 1); data[i] != ']'; {
			end := pastValue(data, i)
			if !yield(data[i:end:end]) {
				return
			}
			if i = pastSpace(data, end); data[i] == ',' {
				i = pastSpace(data, i+1)
			}
		}
	}
}

func pastSpace(data []byte, i int) int {
	for data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r' {
		i++
	}
	return i
}

// pastValue returns the end of the value that begins at i.
func pastValue(data []byte, i int) int {
	for depth := 0; ; {
		switch data[i] {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				break
			}
			for i < len(data) && bytes.IndexByte([]byte(" \t\r\n,]}"), data[i]) < 0 { // a number, true, false or null
				i++
			}
			return i
		}
		i++
		if depth == 0 {
			return i
		}
	}
}
