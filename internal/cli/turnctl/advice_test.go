package turnctl

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"turnkeeper/internal/words"
	"turnkeeper/storage"
	"turnkeeper/tools/mcp"
)

// TestEachCauseHasAdvice checks the advice on each cause that package storage names, and on the server's codes of
// refused connections.
func TestEachCauseHasAdvice(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../storage/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Cause") {
			named++
		}
		return true
	})
	causes := []string{
		storage.CauseRefused, storage.CauseName, storage.CauseUnreachable, storage.CauseTimeout, storage.CauseTLS,
		storage.CauseClosed, storage.CauseURL,
	}
	if named != len(causes) {
		t.Errorf("package storage names %d causes, and %d are checked", named, len(causes))
	}
	seen := map[string]string{}
	for _, cause := range append(causes, "28P01", "28000", "3D000", "53300", "57P01", "57P02", "57P03") {
		advice := words.DatabaseAdvice(cause, "")
		if advice == "" || seen[advice] != "" {
			t.Errorf("the advice on %s is %q, as on %q", cause, advice, seen[advice])
		}
		if cause != storage.CauseRefused && strings.Contains(advice, "start Postgres") {
			t.Errorf("the advice on %s is to start Postgres, which runs: %s", cause, advice)
		}
		seen[advice] = cause
	}
}

// TestAdviceOnAServer checks what the check of MCP servers advises on an error.
func TestAdviceOnAServer(t *testing.T) {
	for want, err := range map[string]error{
		"logs in: turnctl mcp login docs":   &mcp.AuthError{Login: "docs", Why: "expired"},
		"until it has a token; check oauth": &mcp.AuthError{Why: "expired"},
		"until it answers":                  errors.New("connection refused"),
	} {
		if got := adviceOf(fmt.Errorf("listing its tools: %w", err)); !strings.Contains(got, want) {
			t.Errorf("on %v: %q, want %q", err, got, want)
		}
	}
}
