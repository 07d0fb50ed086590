package words

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain makes untrusted text safe to show in a terminal or browser: it escapes
// control characters and changes of direction. It keeps line ends and tabs.
func Plain(text string) string {
	if !strings.ContainsFunc(text, Obeyed) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text { // invalid bytes become U+FFFD
		if Obeyed(r) {
			b.WriteString(escape(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Obeyed reports whether the character controls a terminal or the direction of
// text. Line ends and tabs do not count.
func Obeyed(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r):
		return true
	case r == '\u2028' || r == '\u2029', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069',
		r == '\u200e' || r == '\u200f' || r == '\u061c':
		return true // Unicode line ends and directions
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

// Brief joins a text into one line, cuts it to most characters and makes it plain.
func Brief(text string, limit int) string {
	line := strings.Join(strings.Fields(text), " ")
	if runes := []rune(line); len(runes) > limit {
		line = string(runes[:limit-1]) + "…"
	}
	return Plain(line)
}

// Quote returns untrusted text in quotation marks and in one line. Line ends and tabs are written as escapes, for texts
// that may differ in nothing else.
func Quote(text string) string {
	return "“" + strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Plain(text)) + "”"
}

// Sentence returns a clause with one full stop.
func Sentence(text string) string {
	if text = Clause(text); strings.HasSuffix(text, "...") || strings.HasSuffix(text, "…") {
		return text
	}
	return text + "."
}

// Clause returns a sentence without its full stop.
func Clause(text string) string {
	if strings.HasSuffix(text, "...") {
		return text
	}
	return strings.TrimRight(text, ". ")
}
