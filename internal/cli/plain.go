package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// plain makes foreign text safe to print: everything that a terminal would
// obey (control characters, changes of direction) is written as an escape.
// Line ends and tabs stay.
func plain(text string) string {
	if !strings.ContainsFunc(text, obeyed) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text { // broken bytes come as U+FFFD
		if obeyed(r) {
			b.WriteString(escaped(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// obeyed says that the character does something to a terminal.
func obeyed(r rune) bool {
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

func escaped(r rune) string {
	switch {
	case r == '\r':
		return `\r`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	default:
		return fmt.Sprintf(`\u%04x`, r)
	}
}

// oneLine is the text on one line, at most columns wide, with … where it was
// cut; columns 0: as wide as it is.
func oneLine(text string, columns int) string {
	return cut(plain(strings.Join(strings.Fields(text), " ")), columns)
}

// cut is the beginning of a line that fits into the columns.
func cut(line string, columns int) string {
	if columns <= 0 || columnsOf(line) <= columns {
		return line
	}
	taken := 0
	for i, r := range line {
		taken += columnsOfRune(r)
		if taken > columns-1 {
			return strings.TrimRight(line[:i], " ") + "…"
		}
	}
	return line
}

// cutLeft is the end of a line that fits into the columns.
func cutLeft(line string, columns int) string {
	if columnsOf(line) <= columns {
		return line
	}
	runes := []rune(line)
	from, taken := len(runes), 1
	for i := len(runes) - 1; i >= 0; i-- {
		wide := columnsOfRune(runes[i])
		if taken += wide; taken > columns {
			break
		}
		if wide > 0 { // a mark stays with the character before it
			from = i
		}
	}
	return "…" + string(runes[from:])
}

// columnsOf is how wide a terminal shows the text.
func columnsOf(text string) (n int) {
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

func columnsOfRune(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// wrap breaks foreign text into lines of at most columns; its own line ends
// stay. columns 0: no line is broken.
func wrap(text string, columns int) (lines []string) {
	for line := range strings.SplitSeq(plain(strings.TrimRight(text, " \t\n\r")), "\n") {
		line = strings.ReplaceAll(line, "\t", "    ")
		for columns > 0 && columnsOf(line) > columns {
			var head string
			head, line = split(line, columns)
			lines = append(lines, head)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// split breaks a line after the last word that fits, or within a word that
// does not fit by itself.
func split(line string, columns int) (head, rest string) {
	taken, space := 0, -1
	for i, r := range line {
		taken += columnsOfRune(r)
		if r == ' ' && strings.TrimLeft(line[:i], " ") != "" {
			space = i
		}
		if taken <= columns || i == 0 {
			continue
		}
		if space > 0 {
			return strings.TrimRight(line[:space], " "), strings.TrimLeft(line[space:], " ")
		}
		return line[:i], line[i:]
	}
	return line, ""
}
