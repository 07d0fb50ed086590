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
	MaxArgumentDepth = 64        // objects and arrays within each other, the outermost included
)

// Arguments are the validated arguments of a call.
type Arguments struct {
	// Canonical is what is hashed, stored and run: the keys of every object in
	// byte order, no space between tokens, nothing escaped that need not be,
	// and each number written in one way (see CheckArguments).
	Canonical string
	// Coerced says that a string was decoded into the array or object that the
	// schema requires.
	Coerced bool
}

// CheckArguments reads the arguments of a call as a provider sent them. They
// must be one JSON object, valid UTF-8, within MaxArgumentBytes and
// MaxArgumentDepth, without a key twice, anything after the object, a lone
// surrogate or a NUL character, and valid by the schema. An empty or blank text
// counts as an empty object; null does not. A string in place of an array or object
// that the schema requires is decoded, if it is that JSON. A property that is not
// required, is null and must not be null counts as absent.
//
// Numbers must fit a 64-bit float, and have at most 100 characters and 80
// digits that count. Those without an exponent, a leading minus zero or zeros
// at the end of a fraction stay as they are written; others are rewritten to
// that form (1e2 and 100.0 to 100), with no digit lost, or, where it would take more than 100
// characters, to d.ddde±N. So equal arguments have equal canonical forms.
//
// fault is empty if the arguments are valid; else it is text for the model that
// lists all errors and what is required. Canonical arguments are their own
// canonical form.
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

// fault makes the text for the model.
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

// MalformedPlaceholder is the valid JSON object that is stored and sent back
// to providers in place of arguments that are not one. It quotes the first 500
// characters of what was sent, cleaned.
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

// clip is the text, or its first n characters and an ellipsis.
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
