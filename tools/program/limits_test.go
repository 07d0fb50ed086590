package program

import (
	"bytes"
	"strings"
	"testing"

	"turnkeeper/internal/limittest"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/redact"
	"turnkeeper/tools"
)

// TestLimits tries each limit of what is shown of a program that failed. Of the bytes that are not shown none is kept
// but redact.Margin.
func TestLimits(t *testing.T) {
	rows := map[string]limittest.Row{
		"maxStderr": {At: 4000, Takes: func(t *testing.T, n int) bool {
			kept := &tail{room: maxStderr + redact.Margin}
			for _, piece := range []string{strings.Repeat("a", 10_000), strings.Repeat(".", n)} {
				if _, err := kept.Write([]byte(piece)); err != nil {
					t.Fatal(err)
				}
			}
			if len(kept.kept) != maxStderr+redact.Margin {
				t.Errorf("%d bytes are kept", len(kept.kept))
			}
			return strings.Count(kept.end(tools.Call{}, maxStderr), ".") == len("...")+n
		}},
		"maxSaid": {At: 1000, Takes: func(t *testing.T, n int) bool {
			kept := &head{ctx: t.Context(), memory: (*membudget.Budget)(nil).Account().Lease(),
				room: maxSaid + redact.Margin}
			if _, err := kept.Write(bytes.Repeat([]byte("."), n)); err != nil {
				t.Fatal(err)
			}
			return len(kept.start(tools.Call{}, maxSaid)) == n
		}},
	}
	for name, why := range map[string]string{
		"keeperSlack": "a keeper uses it only while its worker is stopped",
		"giveUp":      "a keeper uses it only for processes that cannot be killed",
		"maxReport":   "a keeper writes less", "prSetChildSubreaper": "Linux defines it",
		"ordersFD": "it numbers a file",
		"reportFD": "it numbers a file",
	} {
		rows[name] = limittest.Row{None: why}
	}
	limittest.Check(t, rows)
}
