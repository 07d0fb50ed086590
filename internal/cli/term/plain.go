package term

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"turnkeeper/internal/words"
)

// Plain makes foreign text safe to print: everything that a terminal would
// obey is written as an escape.
func Plain(text string) string { return words.Plain(text) }

// OneLine is the text on one line, at most columns wide, with … where it was
// cut; columns 0: as wide as it is.
func OneLine(text string, columns int) string {
	return Cut(Plain(strings.Join(strings.Fields(text), " ")), columns)
}

// Cut is the beginning of a line that fits into the columns.
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

// CutLeft is the end of a line that fits into the columns.
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
		if wide > 0 { // a mark stays with the character before it
			from = i
		}
	}
	return "…" + string(runes[from:])
}

// Width is how wide a terminal shows the text.
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

// Wrap breaks foreign text into lines of at most columns; its own line ends
// stay. columns 0: no line is broken.
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

// PreviewColumns bounds what a list shows of a body.
const PreviewColumns = 120
