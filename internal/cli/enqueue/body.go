package enqueue

import (
	"fmt"
	"io"
	"os"
	"strings"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
)

// readBody returns the body: the arguments joined by spaces, or standard input.
func (e *enqueuing) readBody(args []string) (string, error) {
	if len(args) > 0 && (len(args) > 1 || args[0] != "-") {
		return strings.Join(args, " "), nil
	}
	if file, ok := e.Stdin.(*os.File); ok && len(args) == 0 {
		if _, _, terminal := term.TerminalSize(file); terminal {
			return "",
				shell.Misused(
					`no message: give it as an argument, pipe it in, or pass "-", type it and end with Ctrl-D`)
		}
	}
	body, err := io.ReadAll(io.LimitReader(e.Stdin, turnkeeper.LargestMessage+1))
	if err != nil {
		return "", fmt.Errorf("cannot read the message from standard input: %w", err)
	}
	if len(body) > turnkeeper.LargestMessage {
		return "", fmt.Errorf("%w: the body has more than %d bytes", turnkeeper.ErrInvalidMessage,
			turnkeeper.LargestMessage)
	}
	// Drop the line end that an editor or echo adds.
	text, _ := strings.CutSuffix(string(body), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}
