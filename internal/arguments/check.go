package arguments

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a call's arguments.
const (
	MaxBytes = 256 << 10 // as the provider sent them, and in canonical form
	MaxDepth = 64        // nesting levels of objects and arrays, the outermost included
)

// Read says how a Schema reads arguments.
type Read int

// The ways to read arguments.
const (
	AsWritten Read = iota // a text is a text
	Decoding              // a text that holds JSON stands for the array or object that the schema wants in its place
)

// Check validates the arguments of a call as a provider sent them. They must be one JSON object in valid UTF-8, within
// MaxBytes and MaxDepth, with no duplicate key, lone surrogate or NUL character and no text after the object, and valid
// by the schema. No key may differ only in letter case from a property that the schema declares in its place. Empty or
// blank text counts as an empty object; null does not. A null in an optional property that refuses null counts as
// absent. coerced reports whether Decoding replaced a text.
//
// Numbers must fit a 64-bit float, and have at most 100 characters and 80 significant digits. An exponent, the minus of
// -0 and trailing zeros of a fraction are removed without losing a digit (1e2 and 100.0 become 100); a number that then
// has more than 100 characters is written as d.ddde±N. Other numbers are unchanged. So equal arguments have equal
// canonical texts, and canonical arguments are unchanged. The schema compares numbers exactly.
//
// fault is empty if the arguments are valid. Else it is text for the model that lists the errors and the required
// properties.
func (s *Schema) Check(raw string, how Read) (args Value, coerced bool, fault string) {
	object, coerced, err := s.read(raw, how)
	if err != nil {
		return Value{}, false, s.Fault(err.Error())
	}
	if problems := s.problems(object); len(problems) > 0 {
		return Value{}, false, s.Fault(strings.Join(problems, "; "))
	}
	if n := len(appendCanonical(nil, object)); n > MaxBytes {
		return Value{}, false, s.Fault(tooLong(n).Error())
	}
	return Value{object}, coerced, ""
}

func (s *Schema) read(raw string, how Read) (object map[string]any, coerced bool, err error) {
	if len(raw) > MaxBytes {
		return nil, false, tooLong(len(raw))
	}
	text := strings.Trim(raw, jsonSpace)
	if text == "" {
		return map[string]any{}, false, nil
	}
	value, err := parseJSON(text, MaxDepth)
	if err != nil {
		return nil, false, err
	}
	c := coercer{refs: s.refs, decodes: how == Decoding}
	object, ok := c.coerce(s.root, value, 1).(map[string]any)
	if !ok {
		return nil, false, fmt.Errorf("they are %s, not a JSON object", kindOf(value))
	}
	return object, c.coerced, nil
}

func tooLong(n int) error {
	return fmt.Errorf("they are %d bytes long, at most %d are allowed", n, MaxBytes)
}

// Misfits names the arguments of an object that the schema refuses; empty: the schema accepts all. It quotes no value.
func (s *Schema) Misfits(args Value) string {
	object, ok := args.json.(map[string]any)
	if !ok || s.exact.accepts(object) {
		return ""
	}
	names := s.exact.refused(object)
	if len(names) == 0 {
		return "an argument"
	}
	return "the argument " + quoteAll(names)
}

// Fault returns the text for the model about arguments with a problem.
func (s *Schema) Fault(problem string) string {
	text := "invalid arguments: " + problem + ". Nothing was run. Send one JSON object that fits the tool's schema"
	if required := s.required(); required != "" {
		text += "; required: " + required
	}
	return text + "."
}

// MalformedPlaceholder returns the JSON object that is stored and sent back to providers in place of arguments that are
// not a JSON object. It quotes their first 500 characters, with invalid UTF-8 replaced and NUL removed.
func MalformedPlaceholder(raw string) string {
	quoted := clip(raw[:min(len(raw), maxPlaceholderBytes)], maxPlaceholderChars)
	quoted = strings.ReplaceAll(strings.ToValidUTF8(quoted, "\uFFFD"), "\x00", "")
	return string(appendCanonical(nil, map[string]any{"malformed_arguments": true, "raw": quoted}))
}

const (
	maxPlaceholderChars = 500
	maxPlaceholderBytes = (maxPlaceholderChars + 1) * utf8.UTFMax
	maxKeyChars         = 100
)

// clip cuts the text to its first n characters and an ellipsis.
func clip(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i] + "…"
		}
		n--
	}
	return text
}

func quoteAll(names []string) string {
	names = slices.Clone(names[:min(len(names), maxProblems)])
	for i, name := range names {
		names[i] = fmt.Sprintf("%q", clip(name, maxKeyChars))
	}
	return strings.Join(names, ", ")
}
