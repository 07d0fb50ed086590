package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"turnkeeper"
)

// largestMessage is the most that the setting max_message_bytes can be.
const largestMessage = 16 << 20

// readBody is the message: the arguments, or standard input.
func (e *enqueuing) readBody(args []string) (string, error) {
	if len(args) > 0 && (len(args) > 1 || args[0] != "-") {
		return strings.Join(args, " "), nil
	}
	if file, ok := e.Stdin.(*os.File); ok && len(args) == 0 {
		if _, _, terminal := terminalSize(file); terminal {
			return "", usageError(`there is no message: give it as an argument, pipe it in, or type it after "-" and end with Ctrl-D`)
		}
	}
	body, err := io.ReadAll(io.LimitReader(e.Stdin, largestMessage+1))
	if err != nil {
		return "", fmt.Errorf("the message cannot be read from standard input: %w", err)
	}
	if len(body) > largestMessage {
		return "", fmt.Errorf("%w: the body has more than %d bytes", turnkeeper.ErrInvalidMessage, largestMessage)
	}
	// The line end that an editor or echo adds is not part of what was said.
	text, _ := strings.CutSuffix(string(body), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}
