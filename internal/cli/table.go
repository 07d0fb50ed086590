package cli

import (
	"slices"
	"strings"
)

// A table is rows under headings, each column as wide as it must be. On a
// terminal the last column takes what is left and is cut there.
type table struct {
	headings []string
	right    []bool // columns of numbers
	rows     [][]cell
}

// A cell is one value of a table.
type cell struct {
	text string
	tone tone
}

// newTable has these headings; one that begins with ">" is of numbers.
func newTable(headings ...string) *table {
	t := &table{}
	for _, heading := range headings {
		name, right := strings.CutPrefix(heading, ">")
		t.headings = append(t.headings, name)
		t.right = append(t.right, right)
	}
	return t
}

// add appends a row of strings and cells.
func (t *table) add(values ...any) {
	row := make([]cell, len(values))
	for i, value := range values {
		switch v := value.(type) {
		case cell:
			row[i] = v
		case string:
			row[i] = cell{text: v}
		}
		row[i].text = oneLine(row[i].text, 0)
	}
	t.rows = append(t.rows, row)
}

const columnGap = 2

func (t *table) print(s *screen) {
	widths := t.widths(s.columns)
	heading := make([]cell, len(t.headings))
	for i, name := range t.headings {
		heading[i] = cell{name, dim}
	}
	for _, row := range slices.Insert(t.rows, 0, heading) {
		s.line("%s", t.lay(s, row, widths))
	}
}

// widths fits the columns into a line: the last one gives way.
func (t *table) widths(columns int) []int {
	widths := make([]int, len(t.headings))
	taken := 0
	for i, name := range t.headings {
		widths[i] = columnsOf(name)
		for _, row := range t.rows {
			widths[i] = max(widths[i], columnsOf(row[i].text))
		}
		taken += widths[i] + columnGap
	}
	last := len(widths) - 1
	if over := taken - columnGap - columns; columns > 0 && over > 0 {
		widths[last] = max(widths[last]-over, min(widths[last], minLastColumn))
	}
	return widths
}

// minLastColumn is left to the last column however narrow the terminal is.
const minLastColumn = 16

func (t *table) lay(s *screen, row []cell, widths []int) string {
	var b strings.Builder
	for i, c := range row {
		last := i == len(row)-1
		text := c.text
		if last {
			text = cut(text, widths[i])
		}
		pad := strings.Repeat(" ", max(widths[i]-columnsOf(text), 0))
		switch {
		case t.right[i]:
			b.WriteString(pad + s.in(c.tone, text))
		case last:
			b.WriteString(s.in(c.tone, text))
		default:
			b.WriteString(s.in(c.tone, text) + pad)
		}
		if !last {
			b.WriteString(strings.Repeat(" ", columnGap))
		}
	}
	return strings.TrimRight(b.String(), " ")
}
