// Package tests is black-box. Its folders run the real programs, and kill, stop
// and cut them:
//
//	core    what a turn guarantees and offers
//	faults  crashes, lost workers, a database that fails
//	api     the HTTP API, the page in a browser, webhooks, telemetry
//	mcp     MCP servers
//	cli     the commands, and the examples
//
// All of them run in an Env of internal/env. What is tested here runs no program.
package tests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that a document names is there.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
			there[string(match[1])] = true
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
			if !there[string(match[1])] {
				t.Errorf("%s names %s, which is not there", name, match[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d tests are named", named)
	}
}
