package demo

import (
	"strings"
	"testing"

	"turnkeeper/internal/limittest"
)

// TestLimits tries each limit of a script and of its answers.
func TestLimits(t *testing.T) {
	parses := func(text string) bool {
		_, err := ParseScript("mine"+Extension, []byte(text))
		return err == nil
	}
	limittest.Check(t, map[string]limittest.Row{
		"maxSteps": {At: 100, Takes: func(_ *testing.T, n int) bool {
			return parses("steps:\n" + strings.Repeat("  - {text: hi}\n", n))
		}},
		"maxCalls": {At: 32, Takes: func(_ *testing.T, n int) bool {
			return parses("steps:\n  - calls:\n" + strings.Repeat("      - {name: clock}\n", n))
		}},
		"maxRendered": {At: 256 << 10, Takes: func(t *testing.T, n int) bool {
			p, err := compile("{{ message }}")
			if err != nil {
				t.Fatal(err)
			}
			left := maxRendered
			text, err := p.render(conversation{message: strings.Repeat("x", n)}, &left)
			return err == nil && len(text) == n && left == maxRendered-n
		}},
		"maxFound": {At: 20, Takes: func(_ *testing.T, n int) bool {
			return strings.Count(found("apples", strings.Repeat("apples\n", n)), "apples") == n
		}},
	})
}
