package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a call's arguments.
const (
	MaxArgumentBytes = 256 << 10 // as the provider sent them, and in canonical form
	MaxArgumentDepth = 64        // nesting levels of objects and arrays, the outermost included
)

// Arguments are the validated arguments of a call.
type Arguments struct {
	// Canonical is the JSON that is hashed, stored and passed to the tool: object
	// keys in byte order, no whitespace between tokens, no needless escapes, and
	// numbers in canonical form (see CheckArguments).
	Canonical string
	// Coerced reports whether a string was decoded into the array or object that
	// the schema requires.
	Coerced bool
}

// CheckArguments validates the arguments of a call as a provider sent them. They
// must be one JSON object in valid UTF-8, within MaxArgumentBytes and
// MaxArgumentDepth, with no duplicate key, lone surrogate or NUL character and no
// text after the object, and valid by the schema. Empty or blank text counts as an
// empty object; null does not. Where the schema requires an array or object, a
// string that holds one as JSON is decoded. A null in an optional property that
// refuses null counts as absent.
//
// Numbers must fit a 64-bit float, and have at most 100 characters and 80
// significant digits. An exponent, the minus of -0 and trailing zeros of a fraction
// are removed without losing a digit (1e2 and 100.0 become 100); a number that then
// has more than 100 characters is written as d.ddde±N. Other numbers are unchanged.
// So equal arguments have equal canonical forms, and canonical arguments are
// unchanged.
//
// fault is empty if the arguments are valid. Else it is text for the model that
// lists the errors and the required properties.
func CheckArguments(schema *Schema, raw string) (args Arguments, fault string) {
	object, coerced, err := readArguments(schema, raw)
	if err != nil {
		return Arguments{}, schema.fault(err.Error())
	}
	if problems := schema.problems(object); len(problems) > 0 {
		return Arguments{}, schema.fault(strings.Join(problems, "; "))
	}
	canonical := string(appendCanonical(nil, object))
	if len(canonical) > MaxArgumentBytes {
		return Arguments{}, schema.fault(tooLong(len(canonical)).Error())
	}
	return Arguments{Canonical: canonical, Coerced: coerced}, ""
}

func readArguments(schema *Schema, raw string) (object map[string]any, coerced bool, err error) {
	if len(raw) > MaxArgumentBytes {
		return nil, false, tooLong(len(raw))
	}
	text := strings.Trim(raw, jsonSpace)
	if text == "" {
		return map[string]any{}, false, nil
	}
	value, err := parseJSON(text, MaxArgumentDepth)
	if err != nil {
		return nil, false, err
	}
	c := coercer{refs: schema.refs}
	object, ok := c.coerce(schema.root, value, 1).(map[string]any)
	if !ok {
		return nil, false, fmt.Errorf("they are %s, not a JSON object", kindOf(value))
	}
	return object, c.coerced, nil
}

func tooLong(n int) error {
	return fmt.Errorf("they are %d bytes long, at most %d are allowed", n, MaxArgumentBytes)
}

// fault returns the text for the model.
func (s *Schema) fault(problem string) string {
	text := "invalid arguments: " + problem + ". Nothing was run. Send one JSON object that fits the tool's schema"
	if required := s.required(); required != "" {
		text += "; required: " + required
	}
	return text + "."
}

// Hash returns the hex SHA-256 of the name, a NUL and the canonical arguments.
func Hash(name, canonical string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + canonical))
	return hex.EncodeToString(sum[:])
}

// MalformedPlaceholder returns the JSON object that is stored and sent back to
// providers in place of arguments that are not a JSON object. It quotes their
// first 500 characters, with invalid UTF-8 replaced and NUL removed.
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
