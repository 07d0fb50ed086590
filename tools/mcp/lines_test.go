package mcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"turnkeeper/internal/membudget"
)

// TestLinesOfAProgram checks which messages a line has, whatever blanks are around them, and which lines are no
// messages.
func TestLinesOfAProgram(t *testing.T) {
	t.Parallel()
	const request, answer = `{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":2,"result":{}}`
	for _, c := range []struct {
		line     string
		messages int
		isJSON   bool
		isAnswer bool
		fails    bool // to be decoded
	}{
		{"\n", 0, false, false, false}, {" \t\r\n", 0, false, false, false}, {request + "\n", 1, true, false, false},
		{"  " + answer + " \r\n", 1, true, true, false},
		{"[" + request + "," + answer + "]\n", 2, true, false, false}, {" [" + answer + "] \r\n", 1, true, false,
			false}, {"[]\n", 0, true, false, false},
		{"npm warn\n", 0, false, false, true}, {`{"level":30}` + "\n", 0, true, false, true},
		{"[1,2]\n", 0, true, false, true},
		{`{"jsonrpc":"2.0","id":2,"error":"boom"}` + "\n", 0, true, true, true},
		{`{"id":2,"result":{}}` + "\n", 0, true, false, true}, {`{"jsonrpc":"2.0","result":{}}` + "\n", 0,
			true, false, true},
	} {
		input := bufio.NewReader(strings.NewReader(c.line + "next"))
		line, isJSON, err := readLine(t.Context(), input, newIntake(defaultLimits(),
			(*membudget.Budget)(nil).Account().Lease()))
		if err != nil || isJSON != c.isJSON || string(line) != strings.TrimSpace(c.line) {
			t.Errorf("%q is read as %q, JSON %t, %v", c.line, line, isJSON, err)
		}
		messages, err := decode(line)
		if isJSON || len(line) == 0 {
			if len(messages) != c.messages || (err != nil) != c.fails {
				t.Errorf("%q has %d messages, %v", c.line, len(messages), err)
			}
		}
		if got := isAnswer(line); got != c.isAnswer {
			t.Errorf("%q is an answer: %t", c.line, got)
		}
		rest, _, err := readLine(t.Context(), input, newIntake(defaultLimits(), nil))
		if string(rest) != "next" || !errors.Is(err, io.EOF) {
			t.Errorf("after %q comes %q, %v", c.line, rest, err)
		}
	}
}

// TestLinesBeyondTheLimits checks what replaces a line that is too long or has too many values, and which lines end the
// connection.
func TestLinesBeyondTheLimits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	l := limits{Frame: 4000, Drop: 20_000}
	for name, c := range map[string]struct{ line, want, fails string }{
		"an answer": {`{"jsonrpc":"2.0","id":7,"result":"` + long + `"}`,
			`{"jsonrpc":"2.0","id":7,"error":{"code":-31616,"message":"the answer is too large"}}`, ""},
		"an answer of the limit": {`{"jsonrpc":"2.0","id":7,"result":"` + long[:4000-37] + `"}`, "itself", ""},
		"a request": {`{"jsonrpc":"2.0","id":7,"method":"m","params":"` + long + `"}`, "",
			"it sent a message of more than 16 MiB"},
		"too much to be read": {`{"jsonrpc":"2.0","id":7,"result":"` + strings.Repeat(long, 5) + `"}`, "",
			"it sent a message of more than 16 MiB"},
		"a request of many values": {`{"jsonrpc":"2.0","id":7,"method":"m","params":[` + strings.Repeat("0,",
			1900) + `0]}`, "itself", ""},
	} {
		line, isJSON, err := readLine(t.Context(), bufio.NewReaderSize(strings.NewReader(c.line+"\n"), 16),
			newIntake(l, nil))
		if c.want == "itself" {
			c.want = c.line
		}
		if string(line) != c.want || c.fails == "" && !isJSON || fmt.Sprint(err) != orElse(c.fails, "<nil>") {
			t.Errorf("%s: %.100q, JSON %t, %v", name, line, isJSON, err)
		}
	}
}
