package term

import (
	"slices"
	"strings"
)

// A Table prints rows under headings in columns. On a terminal it cuts the
// last column to the width that is left.
type Table struct {
	headings []string
	right    []bool // right-aligned columns
	rows     [][]Cell
}

// A Cell is one value of a table.
type Cell struct {
	Text string
	Tone Tone
}

// NewTable returns a table with headings; ">" before one aligns its column to the right.
func NewTable(headings ...string) *Table {
	t := &Table{}
	for _, heading := range headings {
		name, right := strings.CutPrefix(heading, ">")
		t.headings = append(t.headings, name)
		t.right = append(t.right, right)
	}
	return t
}

// Add appends a row of strings and cells.
func (t *Table) Add(values ...any) {
	row := make([]Cell, len(values))
	for i, value := range values {
		switch v := value.(type) {
		case Cell:
			row[i] = v
		case string:
			row[i] = Cell{Text: v}
		}
		row[i].Text = OneLine(row[i].Text, 0)
	}
	t.rows = append(t.rows, row)
}

const columnGap = 2

// Print prints the table, with its headings.
func (t *Table) Print(s *Screen) {
	widths := t.widths(s.Columns)
	heading := make([]Cell, len(t.headings))
	for i, name := range t.headings {
		heading[i] = Cell{name, Dim}
	}
	for _, row := range slices.Insert(t.rows, 0, heading) {
		s.Line("%s", t.lay(s, row, widths))
	}
}

// widths returns the widths of the columns. It narrows the last one to fit.
func (t *Table) widths(columns int) []int {
	widths := make([]int, len(t.headings))
	taken := 0
	for i, name := range t.headings {
		widths[i] = Width(name)
		for _, row := range t.rows {
			widths[i] = max(widths[i], Width(row[i].Text))
		}
		taken += widths[i] + columnGap
	}
	last := len(widths) - 1
	if over := taken - columnGap - columns; columns > 0 && over > 0 {
		widths[last] = max(widths[last]-over, min(widths[last], minLastColumn))
	}
	return widths
}

// minLastColumn is the minimum width of a last column that is cut.
const minLastColumn = 16

func (t *Table) lay(s *Screen, row []Cell, widths []int) string {
	var b strings.Builder
	for i, c := range row {
		last := i == len(row)-1
		text := c.Text
		if last {
			text = Cut(text, widths[i])
		}
		pad := strings.Repeat(" ", max(widths[i]-Width(text), 0))
		switch {
		case t.right[i]:
			b.WriteString(pad + s.Paint(c.Tone, text))
		case last:
			b.WriteString(s.Paint(c.Tone, text))
		default:
			b.WriteString(s.Paint(c.Tone, text) + pad)
		}
		if !last {
			b.WriteString(strings.Repeat(" ", columnGap))
		}
	}
	return strings.TrimRight(b.String(), " ")
}
