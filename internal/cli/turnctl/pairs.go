package turnctl

import (
	"strings"

	"turnkeeper/internal/cli/term"
)

// pairs prints names with their values beside them.
type pairs struct {
	*term.Screen
	indent string
	width  int // of the names' column
}

// add prints one pair. The value is printed as it is; further lines stand
// below the first.
func (p pairs) add(name string, lines ...string) {
	for _, line := range lines {
		pad := strings.Repeat(" ", max(p.width-term.Width(name), 1))
		p.Line("%s", strings.TrimRight(p.indent+p.Paint(term.Dim, name)+pad+line, " "))
		name = ""
	}
}
