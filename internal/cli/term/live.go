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

// Control sequences: use the alternate screen, hide the cursor and do not wrap lines; and back.
const (
	enterPage = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leavePage = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// A Live shows a page that refreshes and scrolls on the whole terminal. It is not safe for
// concurrent use.
type Live struct {
	out     *Screen
	to      io.Writer // the terminal
	keys    <-chan string
	resized <-chan os.Signal
	stopped <-chan os.Signal // SIGTSTP
	enter   func()
	leave   func()

	top   int // the first visible line
	lines int // of the last page
	rows  int // of the terminal
}

// A LiveStep is the next action of the caller.
type LiveStep int

// The steps.
const (
	LiveLook LiveStep = iota // query again, and draw
	LiveDraw                 // draw the last result
	LiveQuit
)

// EnterLive takes over the terminal of out; leave restores it.
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
		<-ended // leave further input to the shell
		t.leave()
		quiet()
	}
}

// readKeys sends typed keys until ctx ends. singleKeys must have set up the terminal.
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

// keyPause is the pause between reads without input.
const keyPause = 20 * time.Millisecond

// Next waits for a tick, a key, a signal or the end of ctx.
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
		stopSelf() // returns after SIGCONT
		t.enter()
		return LiveLook
	case typed := <-t.keys:
		return t.typed(typed)
	}
}

// typed handles keys, of which several may come at once.
func (t *Live) typed(keys string) LiveStep {
	step := LiveDraw
	for keys != "" {
		key := keys[:1]
		for _, known := range []string{"\x1b[A", "\x1b[B", "\x1bOA", "\x1bOB", "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F",
			"\x1b[1~", "\x1b[4~"} {
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

// room is the number of visible lines of the page. The last line of the terminal shows keys or an
// error.
func (t *Live) room() int { return max(t.rows-1, 1) }

// Draw draws a page in the terminal's current size, with the error in the last line.
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
	b.WriteString("\x1b[H") // overwrite: clearing first would flicker
	for _, line := range lines[t.top:end] {
		b.WriteString(clip(line, paper.Columns) + "\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	fmt.Fprintf(&b, "\x1b[%d;1H%s\x1b[K", t.rows, clip(t.footer(&paper, fault, end), paper.Columns))
	_, err := io.WriteString(t.to, b.String())
	return err
}

// defaultRows is the height of a terminal that does not report one.
const defaultRows = 24

func (t *Live) footer(s *Screen, fault Cell, end int) string {
	if fault.Text != "" {
		return s.Paint(fault.Tone, fault.Text)
	}
	text := "q quit   space refresh"
	if t.lines > t.room() {
		text += fmt.Sprintf("   ↑↓ scroll, lines %d to %d of %d", t.top+1, end, t.lines)
	}
	return s.Paint(Dim, text)
}

// clip cuts a line, which may have colours, to a width.
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
