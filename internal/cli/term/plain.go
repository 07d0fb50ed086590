package term

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"turnkeeper/internal/words"
)

// Plain makes untrusted text safe to print: it escapes control characters.
func Plain(text string) string { return words.Plain(text) }

// OneLine joins the text into one line and cuts it with … at columns. With
// columns 0 it does not cut.
func OneLine(text string, columns int) string {
	return Cut(Plain(strings.Join(strings.Fields(text), " ")), columns)
}

// Cut shortens a line to columns, with … at its end. With columns 0 it does not cut.
func Cut(line string, columns int) string {
	if columns <= 0 || Width(line) <= columns {
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

// CutLeft shortens a line to columns, with … at its start.
func CutLeft(line string, columns int) string {
	if Width(line) <= columns {
		return line
	}
	runes := []rune(line)
	from, taken := len(runes), 1
	for i := len(runes) - 1; i >= 0; i-- {
		wide := columnsOfRune(runes[i])
		if taken += wide; taken > columns {
			break
		}
		if wide > 0 { // keep a combining mark with its character
			from = i
		}
	}
	return "…" + string(runes[from:])
}

// Width returns the number of terminal columns of the text.
func Width(text string) (n int) {
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

// Wrap breaks untrusted text into lines of at most columns and keeps its line
// ends. With columns 0 it breaks no line.
func Wrap(text string, columns int) (lines []string) {
	for line := range strings.SplitSeq(Plain(strings.TrimRight(text, " \t\n\r")), "\n") {
		line = strings.ReplaceAll(line, "\t", "    ")
		for columns > 0 && Width(line) > columns {
			var head string
			head, line = split(line, columns)
			lines = append(lines, head)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// split breaks a line after the last word that fits, or within a word that is
// too long for a line.
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

// PreviewColumns is the maximum width of a body in a list.
const PreviewColumns = 120
