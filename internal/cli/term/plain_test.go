package term

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/words"
)

func TestPlain(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"nothing to do", "Grüße,\n\t日本", "Grüße,\n\t日本"},
		{"colour", "\x1b[31mred", `\x1b[31mred`},
		{"return over the line", "safe\revil", `safe\revil`},
		{"C1 control", "a\u009b2Jb", `a\u009b2Jb`},
		{"delete, bell, NUL", "\x7f\a\x00", `\x7f\x07\x00`},
		{"change of direction", "a\u202eb\u2066c", `a\u202eb\u2066c`},
		{"Unicode line end", "a\u2028b", `a\u2028b`},
		{"broken bytes", "a\xffb", "a\uFFFDb"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Plain(c.in); got != c.want {
				t.Errorf("plain(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestCut(t *testing.T) {
	cases := []struct {
		in           string
		columns      int
		want, ending string
	}{
		{"fits", 4, "fits", "fits"},
		{"too long", 5, "too…", "…long"},
		{"日本語", 6, "日本語", "日本語"},
		{"日本語", 5, "日本…", "…本語"},
		{"e\u0301e\u0301e\u0301", 2, "e\u0301…", "…e\u0301"},
	}
	for _, c := range cases {
		if got := Cut(c.in, c.columns); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.columns, got, c.want)
		}
		if got := CutLeft(c.in, c.columns); got != c.ending {
			t.Errorf("cutLeft(%q, %d) = %q, want %q", c.in, c.columns, got, c.ending)
		}
	}
}

func TestWrap(t *testing.T) {
	cases := []struct {
		name, in string
		columns  int
		want     []string
	}{
		{"words", "one two three four", 9, []string{"one two", "three", "four"}},
		{"own line ends", "one\n\ntwo\n", 9, []string{"one", "", "two"}},
		{"a long word", "abcdefghij kl", 4, []string{"abcd", "efgh", "ij", "kl"}},
		{"indent is kept", "  - one two", 7, []string{"  - one", "two"}},
		{"wide characters", "日本語日本語", 5, []string{"日本", "語日", "本語"}},
		{"no limit", "one two three", 0, []string{"one two three"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Wrap(c.in, c.columns)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzWrap(f *testing.F) {
	f.Add("one two", 3)
	f.Add("日本\x1b語 e\u0301", 2)
	f.Add("   x   ", 2)
	f.Fuzz(func(t *testing.T, text string, columns int) {
		columns = 2 + (columns&0x7fffffff)%80
		lines := Wrap(text, columns)
		for _, line := range lines {
			if Width(line) > columns {
				t.Errorf("%d columns where %d are allowed: %q", Width(line), columns, line)
			}
			if strings.ContainsFunc(line, words.Obeyed) || strings.Contains(line, "\n") {
				t.Errorf("a control character is left in %q", line)
			}
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if got, want := squeeze(strings.Join(lines, "")), squeeze(Plain(text)); got != want {
			t.Errorf("text was lost: %q, want %q", got, want)
		}
		if Width(Cut(OneLine(text, 0), columns)) > columns || Width(CutLeft(OneLine(text, 0), columns)) > columns {
			t.Errorf("cut is too wide for %q", text)
		}
	})
}

func TestTimes(t *testing.T) {
	began := time.Date(2026, 3, 4, 9, 30, 0, 0, time.UTC)
	c := Clock{Now: began.Add(10 * time.Minute), Zone: time.UTC}
	for _, tc := range []struct {
		got, want string
	}{
		{c.At(time.Time{}), "-"},
		{c.At(c.Now), "09:40:00 (now)"},
		{c.At(c.Now.Add(-59 * time.Second)), "09:39:01 (59 s ago)"},
		{c.At(c.Now.Add(90 * time.Second)), "09:41:30 (in 1 min)"},
		{c.At(c.Now.Add(-26 * time.Hour)), "2026-03-03 07:40 (26 h ago)"},
		{c.At(c.Now.Add(-72 * time.Hour)), "2026-03-01 09:40 (3 days ago)"},
		{Exact(412 * time.Millisecond), "412 ms"},
		{Exact(1234 * time.Millisecond), "1.23 s"},
		{Exact(42500 * time.Millisecond), "42.5 s"},
		{Exact(90 * time.Second), "1m30s"},
		{Thousands(-1234567), "-1,234,567"},
		{Thousands(999), "999"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
