// Package jsonlimit checks JSON text from outside before a decoder builds values of it. A text of a
// few megabytes may hold millions of empty arrays, and the values need a hundred times its size.
//
// The checks build no values. The limits of every place that reads outside data are in readers.go.
package jsonlimit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Limits bound a JSON text. 0: no limit.
type Limits struct {
	Bytes  int64 // of the text
	Depth  int   // nesting levels of objects and arrays, the outermost included
	Values int   // objects, arrays, strings, numbers, booleans, nulls, and names of members
	// Memory is the maximum of Size.Memory, in bytes.
	Memory int64

	// Object is added to Size.Memory for each object, in bytes: for decoders that need more for a
	// struct than encoding/json for a map.
	Object int64
	// Items bound the members or elements of some values.
	Items []Items
}

// Items bound the number of elements or members of the value at a path: the member Name of the member
// In of the outermost object. Arrays around these are not part of the path; the case of names does not
// matter, and a name with escapes counts as every name.
type Items struct {
	In, Name string
	What     string // they are: "tools"
	Max      int
	Memory   int64 // added to Size.Memory for each
}

// Size is the size of a JSON text.
type Size struct {
	Bytes  int64
	Depth  int
	Values int
	// Memory is about the number of bytes that encoding/json allocates to decode the text into a
	// variable of type any.
	Memory int64
}

// A LimitError says which limit a text exceeds.
type LimitError struct {
	What string // "bytes of JSON", "JSON values", ...
	Max  int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("it has more than %d %s", e.Max, e.What)
}

func (l Limits) check(s Size) error {
	switch {
	case l.Bytes > 0 && s.Bytes > l.Bytes:
		return &LimitError{"bytes of JSON", l.Bytes}
	case l.Depth > 0 && s.Depth > l.Depth:
		return &LimitError{"levels of nested JSON objects and arrays", int64(l.Depth)}
	case l.Values > 0 && s.Values > l.Values:
		return &LimitError{"JSON values", int64(l.Values)}
	case l.Memory > 0 && s.Memory > l.Memory:
		return &LimitError{"bytes of memory for its JSON values", l.Memory}
	}
	return nil
}

// Check returns a *LimitError if the text exceeds the limits, and an error if it is not valid JSON.
func (l Limits) Check(text []byte) error {
	s := NewScanner(l)
	if err := s.Feed(text); err != nil {
		return err
	}
	return s.End()
}

// Unmarshal is json.Unmarshal of a text within the limits.
func (l Limits) Unmarshal(text []byte, into any) error {
	if err := l.Check(text); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// Exact is Unmarshal that keeps the digits of numbers, as a json.Number.
func (l Limits) Exact(text []byte, into any) error {
	if err := l.Check(text); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// ReadAll reads at most Limits.Bytes, and fails with a *LimitError if there is more.
func (l Limits) ReadAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, l.Bytes+1))
	if err == nil && int64(len(text)) > l.Bytes {
		return nil, &LimitError{"bytes", l.Bytes}
	}
	return text, err
}

// ReadStart reads at most Limits.Bytes, and leaves the rest unread. It returns what was read before
// an error too.
func (l Limits) ReadStart(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, l.Bytes)) }
