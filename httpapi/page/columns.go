package page

import (
	"turnkeeper/internal/views/columns"
	"turnkeeper/internal/words"
)

// A cell is a cell of a list, or the heading of its column, which has no text.
type cell struct {
	Name string
	Kind columns.Kind
	Text string
}

// headings returns the headings of the shared columns of a list.
func headings[T any](all []columns.Column[T]) (list []cell) {
	for _, c := range all {
		if c.ShownOn(columns.Page) {
			list = append(list, cell{Name: c.Name, Kind: c.Kind})
		}
	}
	return list
}

// cells returns the cells of one turn or message in the shared columns.
func cells[T any](all []columns.Column[T], one T) (list []cell) {
	for _, c := range all {
		if !c.ShownOn(columns.Page) {
			continue
		}
		text := words.Plain(c.Text(one))
		if c.Cut > 0 {
			text = words.Brief(c.Text(one), c.Cut)
		}
		list = append(list, cell{c.Name, c.Kind, text})
	}
	return list
}
