package turnctl

import (
	"strings"

	"turnkeeper/internal/cli/term"
)

// pairs prints names and values in two columns.
type pairs struct {
	*term.Screen
	indent string
	width  int // of the names' column
}

// add prints a pair, with further lines of the value below the first. It does
// not escape the value.
func (p pairs) add(name string, lines ...string) {
	for _, line := range lines {
		pad := strings.Repeat(" ", max(p.width-term.Width(name), 1))
		p.Line("%s", strings.TrimRight(p.indent+p.Paint(term.Dim, name)+pad+line, " "))
		name = ""
	}
}
