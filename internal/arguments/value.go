// Package arguments reads the arguments of tool calls, and the other JSON values that a decision depends on, in one
// way: strictly, and with exact numbers. A number is its decimal text, never a float: 1122334455667788801 differs from
// 1122334455667788802, and equals 1122334455667788801.0.
//
// Whatever compares, validates, hashes or shows arguments uses a Value, so that no part sees other arguments than the
// tool gets. A test in internal/archtest finds code that decodes JSON into any, map[string]any or []any instead.
package arguments

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// A Value is a JSON value. The zero value is null. It must not be changed while others use it.
type Value struct {
	// An object is a map[string]any, an array a []any, a number a number; other values are as in encoding/json.
	json any
}

// Parse reads one JSON value. It refuses duplicate keys, invalid UTF-8, half of a surrogate pair, NUL characters,
// numbers out of bounds (see Schema.Check), and more than MaxDepth levels. An error is a clause that begins with a
// subject, as in "they are not valid UTF-8".
func Parse(text string) (Value, error) {
	value, err := parseJSON(strings.Trim(text, jsonSpace), MaxDepth)
	return Value{value}, err
}

// Canonical returns the JSON of the value: object keys in byte order, no whitespace between tokens, no needless
// escapes, and numbers in canonical form (see Schema.Check). Values are equal exactly if their canonical texts are.
func (v Value) Canonical() string { return string(appendCanonical(nil, v.json)) }

// Equal reports whether the values are the same.
func (v Value) Equal(other Value) bool { return v.Canonical() == other.Canonical() }

// Hash returns the hex SHA-256 of the name of a tool, a NUL and the canonical arguments of a call.
func Hash(name, canonical string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + canonical))
	return hex.EncodeToString(sum[:])
}

// Members returns the names and values of an object. ok is false if the value is no object.
func (v Value) Members() (members map[string]Value, ok bool) {
	object, ok := v.json.(map[string]any)
	if !ok {
		return nil, false
	}
	members = make(map[string]Value, len(object))
	for name, member := range object {
		members[name] = Value{member}
	}
	return members, true
}

// Member returns a member of an object. ok is false if the value is no object, or has no such member.
func (v Value) Member(name string) (member Value, ok bool) {
	object, _ := v.json.(map[string]any)
	value, ok := object[name]
	return Value{value}, ok
}

// Items returns the items of an array. ok is false if the value is no array.
func (v Value) Items() (items []Value, ok bool) {
	array, ok := v.json.([]any)
	if !ok {
		return nil, false
	}
	items = make([]Value, len(array))
	for i, item := range array {
		items[i] = Value{item}
	}
	return items, true
}

// Text returns a string. ok is false if the value is no string.
func (v Value) Text() (text string, ok bool) {
	text, ok = v.json.(string)
	return text, ok
}

// Number returns the canonical text of a number. ok is false if the value is no number.
func (v Value) Number() (text string, ok bool) {
	n, ok := v.json.(number)
	return string(n), ok
}

// Bool returns true or false. ok is false if the value is neither.
func (v Value) Bool() (value, ok bool) {
	value, ok = v.json.(bool)
	return value, ok
}

// Null reports whether the value is null.
func (v Value) Null() bool { return v.json == nil }

// Plain returns the value as encoding/json would decode it into any, with the numbers as Plain returns them, and
// whether every number is exact in it.
func (v Value) Plain() (plain any, exact bool) {
	exact = true
	plain = mapNumbers(v.json, func(n number) any {
		value, ok := n.plain()
		exact = exact && ok
		return value
	})
	return plain, exact
}

// MapTexts returns an object with each string in it, at any depth, replaced by the result of to. It leaves the names of
// members, and the members that except names. Another value than an object is unchanged.
func (v Value) MapTexts(to func(string) (string, error), except ...string) (_ Value, err error) {
	object, ok := v.json.(map[string]any)
	if !ok {
		return v, nil
	}
	mapped := maps.Clone(object)
	for _, name := range sortedKeys(object) {
		if slices.Contains(except, name) {
			continue
		}
		if mapped[name], err = mapTexts(object[name], to); err != nil {
			return Value{}, err
		}
	}
	return Value{mapped}, nil
}

// maxShortened is the maximum length of each text in shortened arguments, in characters.
const maxShortened = 1000

// Shortened returns canonical arguments as they are recorded: as they are, or if they have more than MaxBytes, with
// each text cut after its first characters. It returns other if they have more than that in any case, or cannot be
// read.
func Shortened(canonical, other string) string {
	if len(canonical) <= MaxBytes {
		return canonical
	}
	value, err := Parse(canonical)
	if err != nil {
		return other
	}
	value, _ = value.MapTexts(func(text string) (string, error) { return clip(text, maxShortened), nil })
	if short := value.Canonical(); len(short) <= MaxBytes {
		return short
	}
	return other
}

func mapTexts(value any, to func(string) (string, error)) (_ any, err error) {
	switch v := value.(type) {
	case string:
		return to(v)
	case []any:
		items := make([]any, len(v))
		for i := range v {
			if items[i], err = mapTexts(v[i], to); err != nil {
				return nil, err
			}
		}
		return items, nil
	case map[string]any:
		object := make(map[string]any, len(v))
		for _, key := range sortedKeys(v) {
			if object[key], err = mapTexts(v[key], to); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	return value, nil
}

// mapNumbers returns a copy of the value with each number in it replaced.
func mapNumbers(value any, to func(number) any) any {
	switch v := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(v))
		for key, member := range v {
			object[key] = mapNumbers(member, to)
		}
		return object
	case []any:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = mapNumbers(item, to)
		}
		return items
	case number:
		return to(v)
	}
	return value
}
