// Package tests holds the black-box tests. Its folders run the real programs, and kill, stop and cut
// them off:
//
//	core    what a turn guarantees and offers
//	faults  crashes, lost workers, a database that fails
//	api     the HTTP API, the page in a browser, webhooks, telemetry
//	mcp     MCP servers
//	cli     the commands, and the examples
//
// All of them run in an Env of internal/env. The test in this package runs no program.
package tests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that a document names exists.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
			exists[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, name := range documents(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`\b(Test[A-Z]\w+)`).FindAllSubmatch(text, -1) {
			named++
			if !exists[string(match[1])] {
				t.Errorf("%s names %s, which does not exist", name, match[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d tests are named", named)
	}
}
