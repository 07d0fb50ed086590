package cli

import "strings"

// pairs prints names with their values beside them.
type pairs struct {
	*screen
	indent string
	width  int // of the names' column
}

// add prints one pair. The value is printed as it is; further lines stand
// below the first.
func (p pairs) add(name string, lines ...string) {
	for _, line := range lines {
		pad := strings.Repeat(" ", max(p.width-columnsOf(name), 1))
		p.line("%s", strings.TrimRight(p.indent+p.in(dim, name)+pad+line, " "))
		name = ""
	}
}
