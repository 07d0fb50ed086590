package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// TestScripts runs testdata/script/*.txtar. Beside testscript's own commands
// they have
//
//	start worker [flags]       start the worker and wait until it takes work
//	code N program [args...]   run a program that ends with exit code N
//
// DATABASE_URL is a migrated database, EMPTY_DATABASE_URL one without a schema.
func TestScripts(t *testing.T) {
	env.SkipInQuick(t)
	t.Parallel()
	binaries := env.BinaryDir(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(script *testscript.Env) error {
			script.Setenv("PATH", binaries+string(os.PathListSeparator)+os.Getenv("PATH"))
			script.Setenv("NO_COLOR", "1")
			script.Setenv("HOME", script.WorkDir)
			script.Setenv("DATABASE_URL", storagetest.URL(t))
			script.Setenv("EMPTY_DATABASE_URL", storagetest.EmptyURL(t))
			return writeBadInput(script.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": func(ts *testscript.TestScript, _ bool, args []string) { startInScript(t, ts, args) },
			"code":  codeInScript,
		},
	})
}

// writeBadInput writes the files that a script cannot contain.
func writeBadInput(dir string) error {
	for name, text := range map[string]string{
		"too-long": strings.Repeat("x", 70_000), "broken-utf8": "a\xffb", "nul": "a\x00b",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func startInScript(t *testing.T, ts *testscript.TestScript, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: start program [flags]")
	}
	environ := []string{"TURNKEEPER_LISTEN=127.0.0.1:0"}
	for _, name := range []string{"PATH", "HOME", "NO_COLOR", "DATABASE_URL"} {
		environ = append(environ, name+"="+ts.Getenv(name))
	}
	p := env.StartProcess(t, args[0], ts.MkAbs("."), environ, env.Binary(t, args[0]), args[1:]...)
	ts.Defer(p.Stop)
	ts.Check(p.TryAwait("worker ready"))
}

func codeInScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [args...]")
	}
	// A shell checks the exit code, because testscript only knows whether a program failed.
	script := `"$@"; code=$?; [ "$code" = "$0" ] || { echo "exit code $code" >&2; exit 1; }`
	ts.Check(ts.Exec("/bin/sh", append([]string{"-c", script}, args...)...))
}
