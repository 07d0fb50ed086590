package term

import (
	"os"

	"golang.org/x/term"
)

// TerminalSize returns the size of a terminal. ok is false if the file is not a terminal.
func TerminalSize(file *os.File) (columns, rows int, ok bool) {
	if !term.IsTerminal(int(file.Fd())) {
		return 0, 0, false
	}
	columns, rows, _ = term.GetSize(int(file.Fd())) // zero if the terminal does not report it
	return columns, rows, true
}
