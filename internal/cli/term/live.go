package term

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// What the terminal is told: another page than the one that the shell writes on, no cursor, and lines
// that do not wrap; and back.
const (
	enterPage = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leavePage = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// A Live is a terminal that shows one page, which is drawn anew again and again and may be longer
// than the terminal is high. Its methods are called by one goroutine.
type Live struct {
	out     *Screen
	to      io.Writer // the terminal
	keys    <-chan string
	resized <-chan os.Signal
	stopped <-chan os.Signal // the terminal asks to be left for a while
	enter   func()
	leave   func()

	top   int // the first line that is shown
	lines int // of the page as drawn last
	rows  int // of the terminal
}

// A LiveStep is what is to be done next.
type LiveStep int

// What is to be done next.
const (
	LiveLook LiveStep = iota // look again, and draw
	LiveDraw                 // draw what is known
	LiveQuit
)

// EnterLive takes the terminal of which out is the screen; leave gives it back as it was.
func EnterLive(ctx context.Context, in io.Reader, out *Screen) (t *Live, leave func()) {
	t = &Live{out: out, to: out.W}
	file, typing := in.(*os.File)
	var restore func()
	t.enter = func() {
		if typing {
			restore, typing = singleKeys(file)
		}
		fmt.Fprint(t.to, enterPage)
	}
	t.leave = func() {
		fmt.Fprint(t.to, leavePage)
		if typing {
			restore()
		}
	}
	var quiet func()
	t.resized, t.stopped, quiet = terminalSignals()
	t.enter()
	reading, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	if typing {
		keys := make(chan string)
		t.keys = keys
		go func() {
			defer close(ended)
			readKeys(reading, file, keys)
		}()
	} else {
		close(ended)
	}
	return t, func() {
		stop()
		<-ended // what is typed from here on is the shell's
		t.leave()
		quiet()
	}
}

// readKeys gives what is typed, as it comes, on a terminal that singleKeys has set up, until ctx
// ends.
func readKeys(ctx context.Context, file *os.File, keys chan<- string) {
	buffer := make([]byte, 64)
	for ctx.Err() == nil {
		n, err := file.Read(buffer)
		if n > 0 {
			select {
			case keys <- string(buffer[:n]):
			case <-ctx.Done():
			}
		} else if err != nil {
			select { // nothing was typed, or the terminal is gone
			case <-time.After(keyPause):
			case <-ctx.Done():
			}
		}
	}
}

// keyPause is between reads of a terminal on which nothing is typed.
const keyPause = 20 * time.Millisecond

// Next waits for the next thing to do.
func (t *Live) Next(ctx context.Context, tick <-chan time.Time) LiveStep {
	select {
	case <-ctx.Done():
		return LiveQuit
	case <-tick:
		return LiveLook
	case <-t.resized:
		return LiveDraw
	case <-t.stopped:
		t.leave()
		stopSelf() // returns when it goes on
		t.enter()
		return LiveLook
	case typed := <-t.keys:
		return t.typed(typed)
	}
}

// typed does what keys say; several may come at once.
func (t *Live) typed(keys string) LiveStep {
	step := LiveDraw
	for keys != "" {
		key := keys[:1]
		for _, known := range []string{"\x1b[A", "\x1b[B", "\x1bOA", "\x1bOB", "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F", "\x1b[1~", "\x1b[4~"} {
			if strings.HasPrefix(keys, known) {
				key = known
			}
		}
		keys = keys[len(key):]
		switch key {
		case "q", "Q":
			return LiveQuit
		case " ", "r":
			step = LiveLook
		case "\x1b[A", "\x1bOA", "k":
			t.top--
		case "\x1b[B", "\x1bOB", "j":
			t.top++
		case "\x1b[5~":
			t.top -= t.room()
		case "\x1b[6~":
			t.top += t.room()
		case "\x1b[H", "\x1b[1~", "g":
			t.top = 0
		case "\x1b[F", "\x1b[4~", "G":
			t.top = t.lines
		}
		t.top = max(min(t.top, t.lines-t.room()), 0)
	}
	return step
}

// room is how many lines of the page are shown: the last line of the terminal is for keys and
// faults.
func (t *Live) room() int { return max(t.rows-1, 1) }

// Draw puts a page on the terminal as large as that is now.
func (t *Live) Draw(page func(*Screen), fault Cell) error {
	var drawn bytes.Buffer
	paper := *t.out
	paper.W = &drawn
	t.rows = defaultRows
	if file, ok := t.to.(*os.File); ok {
		if columns, rows, ok := TerminalSize(file); ok && columns > 0 && rows > 0 {
			paper.Columns, t.rows = columns, rows
		}
	}
	page(&paper)
	lines := strings.Split(strings.TrimRight(drawn.String(), "\n"), "\n")
	t.lines = len(lines)
	t.top = max(min(t.top, t.lines-t.room()), 0)
	end := min(t.top+t.room(), t.lines)
	var b strings.Builder
	b.WriteString("\x1b[H") // over what is there: no flicker
	for _, line := range lines[t.top:end] {
		b.WriteString(clip(line, paper.Columns) + "\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	fmt.Fprintf(&b, "\x1b[%d;1H%s\x1b[K", t.rows, clip(t.footer(&paper, fault, end), paper.Columns))
	_, err := io.WriteString(t.to, b.String())
	return err
}

// defaultRows is assumed of a terminal that does not tell its height.
const defaultRows = 24

func (t *Live) footer(s *Screen, fault Cell, end int) string {
	if fault.Text != "" {
		return s.Paint(fault.Tone, fault.Text)
	}
	text := "q quit   space look now"
	if t.lines > t.room() {
		text += fmt.Sprintf("   ↑↓ scroll, lines %d to %d of %d", t.top+1, end, t.lines)
	}
	return s.Paint(Dim, text)
}

// clip cuts a line that may have colours to a width.
func clip(line string, columns int) string {
	var b strings.Builder
	for n := 0; line != ""; {
		if strings.HasPrefix(line, "\x1b[") {
			i := strings.IndexByte(line, 'm') + 1
			if i == 0 {
				break
			}
			b.WriteString(line[:i])
			line = line[i:]
			continue
		}
		r, size := utf8.DecodeRuneInString(line)
		if n += columnsOfRune(r); n > columns {
			return b.String() + "\x1b[0m"
		}
		b.WriteString(line[:size])
		line = line[size:]
	}
	return b.String()
}
