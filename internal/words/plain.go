package words

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain makes foreign text safe to show: everything that a terminal or a browser
// would obey (control characters, changes of direction) is written as an escape.
// Line ends and tabs stay.
func Plain(text string) string {
	if !strings.ContainsFunc(text, Obeyed) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text { // broken bytes come as U+FFFD
		if Obeyed(r) {
			b.WriteString(escape(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Obeyed says that a terminal, or the direction of a text, obeys the character.
func Obeyed(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r):
		return true
	case r == '\u2028' || r == '\u2029', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', r == '\u200e' || r == '\u200f' || r == '\u061c':
		return true // line ends and directions of Unicode
	}
	return false
}

func escape(r rune) string {
	switch {
	case r == '\r':
		return `\r`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	default:
		return fmt.Sprintf(`\u%04x`, r)
	}
}

// Brief is a text on one line of at most so many characters, made plain.
func Brief(text string, most int) string {
	line := strings.Join(strings.Fields(text), " ")
	if runes := []rune(line); len(runes) > most {
		line = string(runes[:most-1]) + "…"
	}
	return Plain(line)
}

// Sentence is a clause with its full stop.
func Sentence(text string) string {
	if text = Clause(text); strings.HasSuffix(text, "...") || strings.HasSuffix(text, "…") {
		return text
	}
	return text + "."
}

// Clause is a sentence without its full stop, to stand before another.
func Clause(text string) string {
	if strings.HasSuffix(text, "...") {
		return text
	}
	return strings.TrimRight(text, ". ")
}
