package program_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/program"
	"turnkeeper/tools/program/programtest"
)

func spec() tools.Spec {
	return tools.Spec{Name: "prog", Description: "Runs.", Effect: turnkeeper.EffectNone}
}

func sh(script string) program.Program {
	return program.Program{Argv: []string{"/bin/sh", "-c", script}}
}

func execute(t testing.TB, p program.Program, arguments string, timeout time.Duration) tools.RunResult {
	t.Helper()
	tool := program.Tool(spec(), p)
	if _, err := tools.NewRegistry(tool); err != nil {
		t.Fatal(err)
	}
	return tools.Execute(t.Context(), tool, tools.Call{
		TurnID: 7, Agent: "clerk", User: "anna", Conversation: "main", Key: turnkeeper.CallKey{Round: 1, Ordinal: 2},
		Arguments: json.RawMessage(arguments), IdempotencyKey: "turn-7-x",
	}, tools.ExecuteOptions{Timeout: timeout, Grace: patience})
}

func TestResults(t *testing.T) {
	text := func(s string) tools.Result { return tools.Result{Text: s, RawBytes: int64(len(s))} }
	failed := func(s string) tools.Result { return tools.Result{Text: s, IsError: true} }
	tests := []struct {
		name string
		run  program.Program
		want tools.Result
	}{
		{"its output", sh("echo hello; echo ignored >&2"), text("hello\n")},
		{"nothing", sh("true"), text("")},
		{"arguments on standard input", sh("read line; echo got $line"), text("got {\"a\":1}\n")},
		{"the call in its environment",
			sh(
				"echo $TURNKEEPER_AGENT $TURNKEEPER_TURN_ID $TURNKEEPER_IDEMPOTENCY_KEY $TURNKEEPER_USER $TURNKEEPER_CONVERSATION"), text("clerk 7 turn-7-x anna main\n")},
		{"its own environment", program.Program{Argv: []string{"/bin/sh", "-c", "echo $A"}, Env: []string{"A=b=c"}},
			text("b=c\n")},
		{"nothing of the worker's environment", sh("echo ${WORKERS_SECRET:-unset}"), text("unset\n")},
		{"a folder", program.Program{Argv: []string{"pwd", "-P"}, Dir: "/"}, text("/\n")},
		{"exit code", sh("echo so far; echo it broke >&2; exit 3"),
			failed("tool error: the program of 'prog' ended with exit code 3. It complained:\nit broke")},
		{"exit code, output alone", sh("echo so far; exit 1"),
			failed(
				"tool error: the program of 'prog' ended with exit code 1, without a complaint. Its output begins:\nso far")},
		{"exit code, silent", sh("exit 255"), failed(
			"tool error: the program of 'prog' ended with exit code 255, without a word.")},
		{"signal", sh("kill -SEGV $$"),
			failed("tool error: the program of 'prog' was ended by a signal (segmentation fault), without a word.")},
		{"a long complaint",
			sh("i=0; while [ $i -lt 999 ]; do echo 123456789 >&2; i=$((i+1)); done; echo last >&2; exit 1"),
			failed("tool error: the program of 'prog' ended with exit code 1. It complained:\n..." + "6789\n" +
				strings.Repeat("123456789\n", 399) + "last")},
		{"cut output", program.Program{Argv: []string{"/bin/sh", "-c", "printf 'abcdé'; echo more"}, MaxOutput: 5},
			tools.Result{Text: "abcd", Incomplete: true, RawBytes: 11}},
		{"binary output", program.Program{Argv: []string{"printf", `\000\001`}, MediaType: "image/png"},
			tools.Result{Bytes: []byte{0, 1}, MediaType: "image/png", RawBytes: 2}},
		{"no such program", program.Program{Argv: []string{"/nowhere/prog"}},
			failed(
				"tool error: the program /nowhere/prog cannot be run: exec: \"/nowhere/prog\": stat /nowhere/prog: no such file or directory")},
		{"no such folder", program.Program{Argv: []string{"/bin/sh"}, Dir: "/nowhere"},
			failed("tool error: the program cannot be started: no such file or directory")},
	}
	t.Setenv("WORKERS_SECRET", "leaked")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, execute(t, tt.run, `{"a":1}`, patience).Result); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// A person may write the arguments of a call in several lines. The program gets one.
func TestArgumentsAreOneLine(t *testing.T) {
	got := execute(t, sh("head -n 1"), "{\n  \"a\": \"x <\\n\",\r\n  \"b\": 1.0\n} ", patience).Result
	if want := `{"a":"x <\n","b":1.0}` + "\n"; got.Text != want {
		t.Errorf("the program reads %q, want %q", got.Text, want)
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name string
		p    program.Program
		want string
	}{
		{"no program", program.Program{}, "it has no program to run"},
		{"NUL in the folder", program.Program{Argv: []string{"a"}, Dir: "\x00"},
			"its program, folder or environment holds a NUL character"},
		{"NUL in a variable", program.Program{Argv: []string{"a"}, Env: []string{"A=\x00"}},
			"its program, folder or environment holds a NUL character"},
		{"an empty name", program.Program{Argv: []string{"", "x"}}, "it has no program to run"},
		{"a negative output", program.Program{Argv: []string{"a"}, MaxOutput: -1},
			"its output is bounded at -1 bytes; it must be 1 to 10000000, or 0"},
		{"NUL", program.Program{Argv: []string{"a\x00"}}, "its program, folder or environment holds a NUL character"},
		{"variable", program.Program{Argv: []string{"a"}, Env: []string{"9=1"}},
			`its environment has "9"; a variable is written NAME=VALUE`},
		{"the call's variable", program.Program{Argv: []string{"a"}, Env: []string{"TURNKEEPER_X=1"}},
			"its environment sets TURNKEEPER_X; names that begin with TURNKEEPER_ are the call's own"},
		{"output", program.Program{Argv: []string{"a"}, MaxOutput: 10_000_001},
			"its output is bounded at 10000001 bytes; it must be 1 to 10000000, or 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tools.NewRegistry(program.Tool(spec(), tt.p))
			if err == nil || err.Error() != `tool "prog": `+tt.want {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func rascal(behaviour, token string) program.Program {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return program.Program{Argv: []string{self, behaviour, token}, Env: []string{programtest.Variable + "=yes"}}
}

// TestTheFamilyEnds checks that cancelling a call ends its whole family.
func TestTheFamilyEnds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere only the process group ends")
	}
	tests := []struct {
		behaviour string
		processes int
	}{
		{"hang", 1}, {"deaf", 1}, {"fork", 3}, {"setsid", 2}, {"orphan", 2}, {"bomb", 1 + 40 + 40*5},
	}
	for _, tt := range tests {
		t.Run(tt.behaviour, func(t *testing.T) {
			token := rand.Text()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := program.Tool(spec(), rascal(tt.behaviour, token)).Run(ctx,
					tools.Call{Arguments: json.RawMessage(`{}`)})
				ended <- err
			}()
			programtest.AwaitAlive(t, token, tt.processes)
			start := time.Now()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("error = %v", err)
			}
			took := time.Since(start)
			programtest.Dead(t, token)
			t.Logf("%d processes ended in %s", tt.processes, took)
		})
	}
}

func TestWhatItLeavesBehindEndsWithIt(t *testing.T) {
	token := rand.Text()
	got := execute(t, rascal("daemon", token), `{}`, patience)
	if got.Outcome != tools.Succeeded || got.Result.Text != "it runs\n" {
		t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
	programtest.Dead(t, token)
}

func TestAKilledKeeper(t *testing.T) {
	token := rand.Text()
	got := execute(t, rascal("patricide", token), `{}`, patience)
	if want :=
		"tool error: the program's keeper was lost (signal: killed); what the program did, it may have done in part"; got.Result.Text != want {
		t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
	programtest.Dead(t, token)
}

func TestHugeOutput(t *testing.T) {
	tests := []struct {
		behaviour string
		timeout   time.Duration
		outcome   tools.Outcome
	}{
		{"gigabyte", 10 * patience, tools.Succeeded},
		{"endless", 300 * time.Millisecond, tools.TimedOut},
	}
	for _, tt := range tests {
		t.Run(tt.behaviour, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			got := execute(t, rascal(tt.behaviour, rand.Text()), `{}`, tt.timeout)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if got.Outcome != tt.outcome || got.Abandoned {
				t.Errorf("%s after %s, abandoned: %t", got.Outcome, took, got.Abandoned)
			}
			if tt.outcome == tools.Succeeded && (len(got.Result.Text) != turnkeeper.MaxOutputBytes ||
				!got.Result.Incomplete || got.Result.RawBytes != 1<<30) {
				t.Errorf("%d of %d bytes, incomplete %v", len(got.Result.Text), got.Result.RawBytes,
					got.Result.Incomplete)
			}
			// TotalAlloc counts all allocations, not only the live ones.
			if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 96 {
				t.Errorf("%d MiB were allocated for 10 MB of output", mb)
			} else {
				t.Logf("%d MiB allocated, %s", mb, took)
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	for i := range 20 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			if got := execute(t, sh("cat"), `{"n":1}`, patience); got.Result.Text != "{\"n\":1}\n" {
				t.Errorf("%d: %+v", i, got)
			}
		})
	}
}

func TestRelativePathsStartAtTheWorkersFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prog"), []byte("#!/bin/sh\npwd -P\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if got := execute(t, program.Program{Argv: []string{"./prog"}, Dir: "/"}, `{}`,
		patience); got.Result.Text != "/\n" {
		t.Errorf("%+v", got)
	}
}
