package term

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"turnkeeper"
	"turnkeeper/internal/words"
)

// A Screen is an output for people.
type Screen struct {
	W        io.Writer
	Terminal bool
	Colour   bool
	Columns  int // 0: no limit
}

// defaultColumns is the width of a terminal that does not report one.
const defaultColumns = 80

// NewScreen returns a Screen on w. It has colours if w is a terminal, TERM is
// not "dumb" and NO_COLOR is not set.
func NewScreen(w io.Writer, env func(string) (string, bool)) *Screen {
	s := &Screen{W: w}
	file, ok := w.(*os.File)
	if !ok {
		return s
	}
	if s.Columns, _, s.Terminal = TerminalSize(file); !s.Terminal {
		return s
	}
	if s.Columns <= 0 {
		text, _ := env("COLUMNS")
		s.Columns, _ = strconv.Atoi(text)
	}
	if s.Columns <= 0 {
		s.Columns = defaultColumns
	}
	s.Columns = max(s.Columns, 40)
	no, _ := env("NO_COLOR")
	term, _ := env("TERM")
	s.Colour = no == "" && term != "dumb"
	return s
}

// Readable is the width for paragraphs, at most 110.
func (s *Screen) Readable() int {
	if s.Columns == 0 {
		return 100
	}
	return min(s.Columns, 110)
}

// Line prints a line.
func (s *Screen) Line(format string, args ...any) { fmt.Fprintf(s.W, format+"\n", args...) }

// A Tone is the parameter of a terminal's colour sequence.
type Tone string

// The tones.
const (
	normal Tone = ""
	Bold   Tone = "1"
	Dim    Tone = "2"
	Good   Tone = "32"
	Warned Tone = "33"
	Bad    Tone = "31"
	Active Tone = "36"
)

// Paint gives text a tone if the screen has colours.
func (s *Screen) Paint(t Tone, text string) string {
	if !s.Colour || t == normal || text == "" {
		return text
	}
	return "\x1b[" + string(t) + "m" + text + "\x1b[0m"
}

// ToneOf returns the tone of a state of a turn, message or call.
func ToneOf[S ~string](state S) Tone {
	switch string(state) {
	case string(turnkeeper.TurnSucceeded):
		return Good
	case string(turnkeeper.TurnDegraded), string(turnkeeper.CallUnknown), string(turnkeeper.CallSkipped),
		string(turnkeeper.CallDenied):
		return Warned
	case string(turnkeeper.TurnFailed):
		return Bad
	case string(turnkeeper.TurnRunning), string(turnkeeper.CallStarted):
		return Active
	default:
		return Dim
	}
}

// SignOf returns the sign of a state.
func SignOf[S ~string](state S) string { return words.Sign(string(state)) }

// Plural returns "1 round", "2 rounds".
func Plural(n int, noun string) string { return words.Plural(n, noun) }

// Thousands formats a number in groups of three digits.
func Thousands(n int64) string { return words.Thousands(n) }

// OrDash returns the text, or a dash if it is empty.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
