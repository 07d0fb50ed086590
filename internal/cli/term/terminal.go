package term

import (
	"os"

	"golang.org/x/term"
)

// TerminalSize asks the file for its size. ok: it is a terminal.
func TerminalSize(file *os.File) (columns, rows int, ok bool) {
	if !term.IsTerminal(int(file.Fd())) {
		return 0, 0, false
	}
	columns, rows, _ = term.GetSize(int(file.Fd())) // zero where the terminal does not tell
	return columns, rows, true
}
