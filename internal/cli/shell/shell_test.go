package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
	"turnkeeper/internal/golden"
	"turnkeeper/storage"
)

// TestExitCodes checks the exit code of each kind of error, also below others, and what is printed of it.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	plain := errors.New("it broke")
	for _, c := range []struct {
		err     error
		code    int
		printed string
	}{
		{nil, 0, ""}, {plain, 1, "p: it broke\n"}, {Misused("%d is odd", 7), 2, "p: 7 is odd\n"}, {NotFound("no %s",
			"such"), 3, "p: no such\n"},
		{Wrong(plain), 2, "p: it broke\n"}, {Refused(plain), 6, "p: it broke\n"}, {Exit(7, plain), 7,
			"p: it broke\n"}, {Silent(5), 5, ""},
		{turnkeeper.ErrEmptyMessage, 2, "p: message cannot be empty\n"}, {turnkeeper.ErrInvalidMessage, 2, ""},
		{turnkeeper.ErrUnknownAgent, 2, ""},
		{turnkeeper.ErrAgentRetired, 2, ""}, {turnkeeper.ErrKeyConflict, 2, ""}, {turnkeeper.ErrNotFound, 3, ""},
		{ErrInterrupted, 130, "p: stopped by a signal\n"},
		{context.Canceled, 130, ""}, {context.DeadlineExceeded, 1, ""}, {syscall.EPIPE, 1, "nothing"},
		{errors.New(" a\x1b "), 1, "p: a\\x1b\n"},
	} {
		var out bytes.Buffer
		p := Program{Command: func(*Session) *cobra.Command {
			return &cobra.Command{Use: "p", RunE: func(*cobra.Command, []string) error { return c.err }}
		}}
		if code := p.Run(t.Context(), t.Context(), Environment{Stderr: &out}); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, code, c.code)
		}
		if c.err == nil {
			continue
		}
		if c.printed == "nothing" && out.Len() > 0 || c.printed != "nothing" && c.printed != "" &&
			out.String() != c.printed {
			t.Errorf("%v: it prints %q, want %q", c.err, out.String(), c.printed)
		}
		if got := exitCode(fmt.Errorf("beyond: %w", c.err), true); got != c.code {
			t.Errorf("%v below another error: exit code %d", c.err, got)
		}
		if _, coded := errors.AsType[*ExitError](c.err); !coded && exitCode(c.err, false) != ExitUsage {
			t.Errorf("%v before the command line was understood: exit code %d", c.err, exitCode(c.err, false))
		}
	}
	if !errors.Is(Refused(plain), plain) {
		t.Error("a coded error hides its cause")
	}
}

// TestWhatIsKnown checks which errors are explained by themselves, so that nobody looks at the schema for their cause.
func TestWhatIsKnown(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		Silent(1): true, syscall.EPIPE: true, turnkeeper.ErrEmptyMessage: true, turnkeeper.ErrInvalidMessage: true,
		turnkeeper.ErrUnknownAgent: true,
		turnkeeper.ErrAgentRetired: true, turnkeeper.ErrKeyConflict: true, turnkeeper.ErrNotFound: false,
		errors.New("a"): false,
	} {
		if got := known(fmt.Errorf("beyond: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	pending := []storage.Migration{{Applied: true}, {}, {}, {Applied: true}}
	if PendingOf(pending) != 2 || PendingOf(nil) != 0 {
		t.Errorf("%d of 4 are pending", PendingOf(pending))
	}
}

// TestJSONIsHarmless checks that JSON has no character that a terminal obeys, keeps others, and is one line or
// indented.
func TestJSONIsHarmless(t *testing.T) {
	t.Parallel()
	value := map[string]string{"a": "<b>\x1b\u009b\u202e日\n"}
	for _, c := range []struct {
		write func(*bytes.Buffer) error
		want  string
	}{
		{func(b *bytes.Buffer) error { return WriteJSON(b, value) },
			"{\n  \"a\": \"<b>\\u001b\\u009b\\u202e日\\n\"\n}\n"},
		{func(b *bytes.Buffer) error { return WriteJSONLine(b, value) }, "{\"a\":\"<b>\\u001b\\u009b\\u202e日\\n\"}\n"},
	} {
		var out bytes.Buffer
		if err := c.write(&out); err != nil || out.String() != c.want {
			t.Errorf("%q, %v; want %q", out.String(), err, c.want)
		}
	}
	if err := WriteJSON(&bytes.Buffer{}, func() {}); err == nil {
		t.Error("a function is written as JSON")
	}
}

// TestNewNeedsOfAFile lists what a changed file needs that the registered one did not.
func TestNewNeedsOfAFile(t *testing.T) {
	t.Parallel()
	old := &agentdef.Definition{
		Model: "openai/a", Tools: []string{"clock"}, MCPServers: []agentdef.MCPServer{{Name: "files"}},
		FallbackModels: []string{"demo/b"},
	}
	for want, file := range map[string]*agentdef.Definition{
		"":                old,
		"tool order":      {Tools: []string{"clock", "order"}},
		"MCP server mail": {MCPServers: []agentdef.MCPServer{{Name: "files"}, {Name: "mail"}}},
		"provider vllm":   {Model: "vllm/a", FallbackModels: []string{"vllm/b", "openai/c", "demo/d"}},
		"tool a, MCP server b, provider c": {Tools: []string{"a"}, MCPServers: []agentdef.MCPServer{{Name: "b"}},
			Model: "openai/x", FallbackModels: []string{"c/d"}},
	} {
		if got := strings.Join(needsOf(file, old), ", "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	reload := AdviceOfChange(fileChanged)
	restart := AdviceOfChange(fileChanged + "; new in it: tool a")
	if !strings.Contains(reload, "SIGHUP") || !strings.Contains(reload, "their log says why") ||
		strings.Contains(reload, "restart") ||
		!strings.Contains(restart, "SIGHUP") || !strings.Contains(restart, "restart workers") ||
		strings.Contains(restart, "their log") {
		t.Errorf("%q\n%q", reload, restart)
	}
}

// TestCompletionsThatFit drops completions that do not begin as typed, or that a terminal would obey, and cuts
// descriptions.
func TestCompletionsThatFit(t *testing.T) {
	t.Parallel()
	got := withPrefix("ab", []string{"abc", "ab\tone\nline\x1b", "b", "ab\x1b", "abd\t" + strings.Repeat("x", 130), ""})
	want := []string{"abc", "ab\tone line\\x1b", "abd\t" + strings.Repeat("x", 119) + "…"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q", got)
	}
	first := func(what string) cobra.CompletionFunc {
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { return []string{what}, 0 }
	}
	each := inOrder([]cobra.CompletionFunc{first("a"), first("b")})
	for n, want := range []string{"a", "b", ""} {
		if got, _ := each(nil, make([]string, n), ""); strings.Join(got, "") != want {
			t.Errorf("after %d arguments: %q", n, got)
		}
	}
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[^"]+|\d\d:\d\d:\d\d\.\d{3}`)

// TestLogger compares a line of each format and level with testdata.
func TestLogger(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, format := range []string{"json", "text"} {
		for _, level := range []string{"debug", "warn", "odd"} {
			var out bytes.Buffer
			log := NewLogger(&config.Config{LogLevel: level, LogFormat: format}, &out)
			log.Debug("a")
			log.Info("b")
			log.Warn("c")
			fmt.Fprintf(&all, "== %s, %s: %d lines\n", format, level, strings.Count(out.String(), "\n"))
			for line := range strings.Lines(out.String()) {
				all.WriteString(times.ReplaceAllString(line, "<time>"))
			}
		}
	}
	golden.File(t, "testdata/log.txt", all.String())
}

// TestDurations sets a flag by a duration.
func TestDurations(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{}
	var d time.Duration
	DurationFlag(cmd.Flags(), &d, "for", 90*time.Second, "how long")
	flag := cmd.Flags().Lookup("for")
	if d != 90*time.Second || flag.Value.String() != "1m30s" || flag.DefValue != "1m30s" ||
		flag.Value.Type() != "duration" {
		t.Errorf("at first %s, %+v", d, flag)
	}
	for text, want := range map[string]time.Duration{"0": 0, "7": 7 * time.Second, "2m": 2 * time.Minute} {
		if err := flag.Value.Set(text); err != nil || d != want || d == 0 && flag.Value.String() != "0" {
			t.Errorf("%q: %s, %v, %s", text, d, err, flag.Value)
		}
	}
	d = time.Minute
	if err := flag.Value.Set("soon"); err == nil || d != time.Minute {
		t.Errorf("a word is %s", d)
	}
}
