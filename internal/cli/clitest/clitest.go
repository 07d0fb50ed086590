// Package clitest checks the output of programs for control characters.
package clitest

import (
	"strings"
	"testing"

	"turnkeeper/internal/words"
)

// Harmless fails the test if text contains a character that a terminal would obey.
func Harmless(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, words.Obeyed); i >= 0 {
		t.Errorf("a control character reaches the terminal: %q", text[max(0, i-20):min(len(text), i+20)])
	}
}
