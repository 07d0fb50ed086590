// Package wire has what the renderers of requests share: an encoder of JSON that writes the same value as the same
// bytes, names, ids and arguments that servers accept, and the results of calls.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// An Object is a JSON object of a request. It is encoded with sorted members.
type Object map[string]any

// ErrNoMessage is the error of a request without a message that can be sent.
var ErrNoMessage = errors.New("the request has no message; it needs at least one")

// Encoded is JSON as Append writes it.
type Encoded []byte

// Append appends what Encode returns to b. For most values of a request it uses no reflection.
func Append(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case string:
		return AppendText(b, v), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case Encoded:
		return append(b, v...), nil
	case *Gap:
		v.at = len(b)
		return append(b, ']'), nil
	case Object:
		b = append(b, '{')
		names := slices.AppendSeq(make([]string, 0, len(v)), maps.Keys(v))
		slices.Sort(names)
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = Append(append(AppendText(b, name), ':'), v[name]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []Object:
		return appendList(b, v)
	case []Encoded:
		return appendList(b, v)
	}
	text, err := Encode(v)
	return append(b, text...), err
}

func appendList[T Object | Encoded](b []byte, list []T) (_ []byte, err error) {
	b = append(b, '[')
	for i, element := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = Append(b, element); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// AppendText appends a string as Encode writes it.
func AppendText(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0 // of what is not appended yet
	for i, r := range s {
		size, escape := 1, ""
		switch {
		case r == '"' || r == '\\':
			escape = `\` + string(r)
		case r == '\n':
			escape = `\n`
		case r == '\r':
			escape = `\r`
		case r == '\t':
			escape = `\t`
		case r == '\b':
			escape = `\b`
		case r == '\f':
			escape = `\f`
		case r < ' ' || r == '\u2028' || r == '\u2029':
			size, escape = utf8.RuneLen(r), fmt.Sprintf(`\u%04x`, r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			escape = `\ufffd`
		default:
			continue
		}
		b = append(append(b, s[from:i]...), escape...)
		from = i + size
	}
	return append(append(b, s[from:]...), '"')
}

// Encode returns the JSON of a value as encoding/json writes it, without escapes for HTML.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("cannot Encode the request as JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// buffers holds buffers in which bodies are made. A body is copied out of its buffer, so it takes no more
// memory than it needs while its call runs.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxBuffer is the size up to which a buffer is used again.
const maxBuffer = 256 << 10

// InBuffer calls use with an empty buffer, which use returns, grown. The buffer must not be used later.
func InBuffer(use func(b []byte) []byte) {
	buffer := buffers.Get().(*[]byte) //nolint:forcetypeassert // it holds nothing else
	if *buffer = use((*buffer)[:0]); cap(*buffer) <= maxBuffer {
		buffers.Put(buffer)
	}
}
