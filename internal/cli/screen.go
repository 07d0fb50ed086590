package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"turnkeeper"
	"turnkeeper/internal/words"
)

// A screen is where text for people goes.
type screen struct {
	w        io.Writer
	terminal bool
	colour   bool
	columns  int // 0: no limit
}

// defaultColumns is assumed of a terminal that does not tell its width.
const defaultColumns = 80

// newScreen looks at what w is. There is colour on a terminal that is not
// "dumb", unless NO_COLOR is set.
func newScreen(w io.Writer, env func(string) (string, bool)) *screen {
	s := &screen{w: w}
	file, ok := w.(*os.File)
	if !ok {
		return s
	}
	if s.columns, _, s.terminal = terminalSize(file); !s.terminal {
		return s
	}
	if s.columns <= 0 {
		text, _ := env("COLUMNS")
		s.columns, _ = strconv.Atoi(text)
	}
	if s.columns <= 0 {
		s.columns = defaultColumns
	}
	s.columns = max(s.columns, 40)
	no, _ := env("NO_COLOR")
	term, _ := env("TERM")
	s.colour = no == "" && term != "dumb"
	return s
}

// readable is the width for paragraphs: long lines are hard to read.
func (s *screen) readable() int {
	if s.columns == 0 {
		return 100
	}
	return min(s.columns, 110)
}

func (s *screen) line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// A tone is how a text is set off, as the terminal writes it.
type tone string

// The tones.
const (
	normal tone = ""
	bold   tone = "1"
	dim    tone = "2"
	good   tone = "32"
	warned tone = "33"
	bad    tone = "31"
	active tone = "36"
)

func (s *screen) in(t tone, text string) string {
	if !s.colour || t == normal || text == "" {
		return text
	}
	return "\x1b[" + string(t) + "m" + text + "\x1b[0m"
}

// toneOf is how a state of a turn, a message or a call is set off.
func toneOf[S ~string](state S) tone {
	switch string(state) {
	case string(turnkeeper.TurnSucceeded), string(turnkeeper.MessageAnswered):
		return good
	case string(turnkeeper.TurnDegraded), string(turnkeeper.CallUnknown), string(turnkeeper.CallSkipped), string(turnkeeper.CallDenied):
		return warned
	case string(turnkeeper.TurnFailed):
		return bad
	case string(turnkeeper.TurnRunning), string(turnkeeper.CallStarted):
		return active
	default:
		return dim
	}
}

func signOf[S ~string](state S) string { return words.Sign(string(state)) }

// plural is "1 round", "2 rounds".
func plural(n int, noun string) string { return words.Plural(n, noun) }

// thousands is a number in groups of three digits.
func thousands(n int64) string { return words.Thousands(n) }
