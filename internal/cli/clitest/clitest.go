// Package clitest checks the output of programs against golden files, and for control characters.
package clitest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/words"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Golden fails the test if got differs from the file testdata/name. With -update it writes the file first.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// Harmless fails the test if text contains a character that a terminal would obey.
func Harmless(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, words.Obeyed); i >= 0 {
		t.Errorf("a control character reaches the terminal: %q", text[max(0, i-20):min(len(text), i+20)])
	}
}
