package request

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// halfPair returns the first unpaired surrogate escape in a JSON text, such as \ud83d; empty: none.
// encoding/json would replace it by U+FFFD.
func halfPair(text []byte) string {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		unit := unitOf(text[i:])
		switch {
		case unit < 0:
			i++ // skip the escaped character
			continue
		case utf16.IsSurrogate(unit):
			if utf16.DecodeRune(unit, unitOf(text[i+escaped:])) == utf8.RuneError {
				return string(text[i : i+escaped])
			}
			i += escaped
		}
		i += escaped - 1
	}
	return ""
}

// hasNUL reports whether a JSON text has the escape of a NUL character, \u0000. Unescaped, the character is no JSON.
func hasNUL(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if unitOf(text[i:]) == 0 {
			return true
		}
		i++ // skip the escaped character
	}
	return false
}

const escaped = len(`\u0000`)

// unitOf returns the UTF-16 code unit of the \u escape at the start of the text; -1: none.
func unitOf(text []byte) rune {
	if len(text) < escaped || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(text[2:escaped]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

// repeated returns a name that an object in the JSON text has twice, compared after applying as; empty:
// none. The decoder takes the last value, but a proxy that filters by agent may have read the first.
func repeated(text []byte, as func(string) string) string {
	type level struct {
		names map[string]bool // nil: an array
		value bool            // the next token is the value of a name
	}
	levels := []level{{}}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return "" // the end, or a syntax error, which the decoder of the caller reports
		}
		at := &levels[len(levels)-1]
		if name, ok := token.(string); ok && at.names != nil && !at.value {
			if at.names[as(name)] {
				return name
			}
			at.names[as(name)], at.value = true, true
			continue
		}
		at.value = false
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
	}
}
