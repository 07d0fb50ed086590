package term

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper"
)

// TestTable prints a table on screens from wider than it to narrower than its last column may become.
func TestTable(t *testing.T) {
	t.Parallel()
	printed := func(columns int, colour bool) string {
		var out bytes.Buffer
		table := NewTable(">N", "NAME", "NOTE")
		table.Add("7", "a\nb\x1b", Cell{"twenty-four columns wide", Good})
		table.Add("1,000", "日本", Cell{Text: ""})
		table.Print(&Screen{W: &out, Columns: columns, Colour: colour})
		return out.String()
	}
	// The table has 43 columns.
	whole := "    N  NAME     NOTE\n    7  a b\\x1b  twenty-four columns wide\n1,000  日本\n"
	for _, c := range []struct {
		columns int
		want    string
	}{
		{0, whole}, {100, whole}, {40, whole},
		{39, "    N  NAME     NOTE\n    7  a b\\x1b  twenty-four columns wi…\n1,000  日本\n"},
		{32, "    N  NAME     NOTE\n    7  a b\\x1b  twenty-four col…\n1,000  日本\n"},
		{20, "    N  NAME     NOTE\n    7  a b\\x1b  twenty-four col…\n1,000  日本\n"},
	} {
		if got := printed(c.columns, false); got != c.want {
			t.Errorf("in %d columns:\n%s\nwant:\n%s", c.columns, got, c.want)
		}
	}
	const coloured = "    ^[2mN^[0m  ^[2mNAME^[0m     ^[2mNOTE^[0m\n    7  a b\\x1b  ^[32mtwenty-four columns wide^[0m\n1,000  日本\n"
	if got := strings.ReplaceAll(printed(0, true), "\x1b", "^"); got != coloured {
		t.Errorf("in colour:\n%s", got)
	}
	var short bytes.Buffer
	narrow := NewTable("A", "B")
	narrow.Add("12345678901234567890", "123")
	narrow.Print(&Screen{W: &short, Columns: 10})
	if want := "A                     B\n12345678901234567890  123\n"; short.String() != want {
		t.Errorf("a last column that is narrow already:\n%s", short.String())
	}
}

// TestScreen checks widths, tones and colours.
func TestScreen(t *testing.T) {
	t.Parallel()
	for columns, want := range map[int]int{0: 100, 40: 40, 109: 109, 110: 110, 111: 110} {
		if got := (&Screen{Columns: columns}).Readable(); got != want {
			t.Errorf("%d columns: %d are readable", columns, got)
		}
	}
	if s := NewScreen(&bytes.Buffer{}, nil); s.Terminal || s.Colour || s.Columns != 0 {
		t.Errorf("a buffer is %+v", s)
	}
	s := &Screen{Colour: true}
	if got := s.Paint(Bad, "a") + s.Paint(normal, "b") + s.Paint(Bad, "") + (&Screen{}).Paint(Bad,
		"c"); got != "\x1b[31ma\x1b[0mbc" {
		t.Errorf("painted %q", got)
	}
	for tone, states := range map[Tone][]string{
		Good: {string(turnkeeper.TurnSucceeded)}, Bad: {string(turnkeeper.TurnFailed)},
		Active: {string(turnkeeper.TurnRunning), string(turnkeeper.CallStarted)},
		Warned: {string(turnkeeper.TurnDegraded), string(turnkeeper.CallUnknown), string(turnkeeper.CallSkipped),
			string(turnkeeper.CallDenied)},
		Dim: {string(turnkeeper.TurnQueued), string(turnkeeper.TurnWaiting), string(turnkeeper.TurnCancelled),
			string(turnkeeper.CallPlanned), ""},
	} {
		for _, state := range states {
			if got := ToneOf(state); got != tone {
				t.Errorf("%s has the tone %q, want %q", state, got, tone)
			}
		}
	}
	if OrDash("") != "-" || OrDash("a") != "a" {
		t.Error("a dash stands only for nothing")
	}
}

// drawn returns what a Live draws of n lines on a terminal of 24 rows.
func drawn(t *testing.T, live *Live, out *bytes.Buffer, n int, fault Cell) string {
	t.Helper()
	out.Reset()
	page := func(s *Screen) {
		for i := range n {
			s.Line("line %d", i+1)
		}
	}
	if err := live.Draw(page, fault); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("\x1b", "^", "\r\n", "\n").Replace(out.String())
}

// TestScrolling types keys and checks which lines are shown.
func TestScrolling(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	live := &Live{out: &Screen{Columns: 40}, to: &out}
	first := drawn(t, live, &out, 100, Cell{})
	if !strings.HasPrefix(first, "^[Hline 1^[K\nline 2^[K\n") ||
		!strings.HasSuffix(first, "\nline 23^[K\n^[J^[24;1Hq quit   space refresh   ↑↓ scroll, line^[0m^[K") {
		t.Errorf("at first:\n%s", first)
	}
	for _, c := range []struct {
		keys string
		step LiveStep
		top  int
	}{
		{"j", LiveDraw, 1}, {"jj", LiveDraw, 3}, {"k", LiveDraw, 2}, {"kkkkk", LiveDraw, 0}, {"\x1b[B", LiveDraw, 1},
		{"\x1bOB", LiveDraw, 2},
		{"\x1b[A", LiveDraw, 1}, {"\x1bOA", LiveDraw, 0}, {"\x1b[6~", LiveDraw, 23}, {"\x1b[6~\x1b[6~\x1b[6~\x1b[6~",
			LiveDraw, 77},
		{"\x1b[5~", LiveDraw, 54}, {"g", LiveDraw, 0}, {"G", LiveDraw, 77}, {"j", LiveDraw, 77}, {"\x1b[H", LiveDraw,
			0}, {"\x1b[F", LiveDraw, 77},
		{"\x1b[1~", LiveDraw, 0}, {"\x1b[4~", LiveDraw, 77}, {" ", LiveLook, 77}, {"r", LiveLook, 77}, {"kx",
			LiveDraw, 76}, {" k", LiveLook, 75},
		{"q", LiveQuit, 75}, {"Q", LiveQuit, 75}, {"kq", LiveQuit, 74}, {"\x1b", LiveDraw, 74},
	} {
		if step := live.typed(c.keys); step != c.step || live.top != c.top {
			t.Errorf("%q: step %d from line %d, want %d from %d", c.keys, step, live.top, c.step, c.top)
		}
	}
	live.out.Columns = 80
	if got := drawn(t, live, &out, 100, Cell{}); !strings.HasPrefix(got, "^[Hline 75^[K\n") || !strings.Contains(got,
		"lines 75 to 97 of 100^[K") {
		t.Errorf("scrolled:\n%s", got)
	}
	for lines, more := range map[int]bool{22: false, 23: false, 24: true} {
		live.top = 0
		last := fmt.Sprintf("line %d^[K\n^[J", min(lines, 23))
		if got := drawn(t, live, &out, lines, Cell{}); strings.Contains(got, "scroll") != more ||
			!strings.Contains(got, last) {
			t.Errorf("%d lines:\n%s", lines, got)
		}
	}
	if got := drawn(t, live, &out, 3, Cell{"no answer", Bad}); !strings.HasSuffix(got, "^[24;1Hno answer^[K") ||
		live.top != 0 {
		t.Errorf("with a fault, from line %d:\n%s", live.top, got)
	}
}

// TestClip cuts lines with colours at the width of the terminal.
func TestClip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line    string
		columns int
		want    string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc\x1b[0m"}, {"日本語", 5, "日本\x1b[0m"}, {"日本", 4, "日本"},
		{"\x1b[31mabc\x1b[0m", 3, "\x1b[31mabc\x1b[0m"}, {"\x1b[31mabcd\x1b[0m", 3, "\x1b[31mabc\x1b[0m"},
		{"a\x1b[31", 3, "a"}, {"", 3, ""},
	} {
		if got := clip(c.line, c.columns); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.line, c.columns, got, c.want)
		}
	}
}

// TestWhatComesNext checks what a Live does at a tick, at keys and at the end.
func TestWhatComesNext(t *testing.T) {
	t.Parallel()
	tick, keys := make(chan time.Time, 1), make(chan string, 1)
	live := &Live{keys: keys}
	tick <- time.Time{}
	if step := live.Next(t.Context(), tick); step != LiveLook {
		t.Errorf("at a tick: %d", step)
	}
	keys <- "q"
	if step := live.Next(t.Context(), tick); step != LiveQuit {
		t.Errorf("at a key: %d", step)
	}
	var out bytes.Buffer
	live, leave := EnterLive(t.Context(), strings.NewReader("q"), &Screen{W: &out})
	leave()
	if want := enterPage + leavePage; out.String() != want || live.keys != nil {
		t.Errorf("without a terminal: %q", out.String())
	}
	if err := (&Live{out: &Screen{}, to: broken{}}).Draw(func(*Screen) {}, Cell{}); !errors.Is(err, errBroken) {
		t.Errorf("a terminal that is gone: %v", err)
	}
}

var errBroken = errors.New("the terminal is gone")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }
