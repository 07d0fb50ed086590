package turnctl

import (
	"slices"
	"strings"

	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/views/columns"
)

// A columnTable is a table of turns or messages: first some columns of its own, then those that the page shows too,
// then others of its own.
type columnTable[T any] struct {
	*term.Table
	shared []columns.Column[T]
}

func newColumns[T any](all []columns.Column[T], before []string, after ...string) columnTable[T] {
	shared := slices.DeleteFunc(slices.Clone(all), func(c columns.Column[T]) bool {
		return !c.ShownOn(columns.Terminal)
	})
	headings := before
	for _, c := range shared {
		heading := strings.ToUpper(c.Name)
		if c.Kind == columns.Number {
			heading = ">" + heading
		}
		headings = append(headings, heading)
	}
	return columnTable[T]{term.NewTable(append(headings, after...)...), shared}
}

// add appends the row of one turn or message.
func (t columnTable[T]) add(one T, before []any, after ...any) {
	row := before
	for _, c := range t.shared {
		row = append(row, c.Text(one))
	}
	t.Add(slices.Concat(row, after)...)
}
