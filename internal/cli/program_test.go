package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/cli/worker"
	"turnkeeper/internal/golden"
)

// ran is the result of running a program.
type ran struct {
	code           int
	stdout, stderr string
}

// run runs a program once with the environment env.
func run(t *testing.T, p shell.Program, env map[string]string, stdin string, args ...string) ran {
	t.Helper()
	return runIn(t.Context(), p, env, stdin, args...)
}

func runIn(ctx context.Context, p shell.Program, env map[string]string, stdin string, args ...string) ran {
	return runWith(ctx, p, env, stdin, func(*shell.Environment) {}, args...)
}

// runWith runs a program in an environment with a change.
func runWith(ctx context.Context, p shell.Program, env map[string]string, stdin string, change func(*shell.Environment),
	args ...string) ran {
	var stdout, stderr bytes.Buffer
	e := shell.Environment{
		Args: args, Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
	change(&e)
	code := p.Run(ctx, context.WithoutCancel(ctx), e)
	return ran{code, stdout.String(), stderr.String()}
}

// nowhere returns an environment without a database.
func nowhere(t *testing.T) map[string]string {
	return map[string]string{
		"TURNKEEPER_DATA_DIR":   filepath.Join(t.TempDir(), "none"),
		"TURNKEEPER_AGENTS_DIR": filepath.Join(t.TempDir(), "none"),
		"TURNKEEPER_CONFIG":     emptyFile(t),
	}
}

func emptyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "turnkeeper.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBadInput(t *testing.T) {
	cases := []struct {
		name    string
		program shell.Program
		stdin   string
		args    []string
		code    int
		want    string // contained in stderr
	}{
		{"unknown command", turnctl.Program(), "", []string{"turnz"}, 2, `unknown command "turnz"`},
		{"unknown command below one", turnctl.Program(), "", []string{"schedules", "stop"}, 2,
			`unknown command "stop"`},
		{"unknown flag", turnctl.Program(), "", []string{"turns", "--all"}, 2, "unknown flag: --all"},
		{"unknown format", turnctl.Program(), "", []string{"turns", "-o", "yaml"}, 2,
			`--output is "yaml": it must be text or json`},
		{"too many entries", turnctl.Program(), "", []string{"turns", "--limit", "101"}, 2,
			"--limit is 101: it must be 1 to 100"},
		{"no entries", turnctl.Program(), "", []string{"inbox", "--limit", "0"}, 2,
			"--limit is 0: it must be 1 to 100"},
		{"unknown state", turnctl.Program(), "", []string{"turns", "--state", "done"}, 2,
			`--state is "done": it must be one of queued, running`},
		{"state of another noun", turnctl.Program(), "", []string{"inbox", "--state", "queued"}, 2,
			"it must be one of waiting, running, succeeded"},
		{"negative page", turnctl.Program(), "", []string{"turns", "--before", "-1"}, 2,
			"--before is -1: it must be an id"},
		{"both directions", turnctl.Program(), "", []string{"outbox", "--after", "1", "--before", "3"}, 2,
			"give --before or --after, not both"},
		{"show without id", turnctl.Program(), "", []string{"show"}, 2, "usage: turnctl show ID|latest"},
		{"no such error class", turnctl.Program(), "", []string{"retry", "--failed", "--error-class", "overlaoded"}, 2,
			`--error-class is "overlaoded": it must be one of rate_limited, overloaded,`},
		{"schedule without name", turnctl.Program(), "", []string{"schedules", "pause", "watcher/"}, 2,
			"give AGENT or AGENT/NAME"},
		{"schedule of no agent", turnctl.Program(), "", []string{"schedules", "pause", "/x"}, 2,
			"give AGENT or AGENT/NAME"},
		{"pause without reason", turnctl.Program(), "", []string{"scheduler", "pause", " "}, 2, "give a reason"},
		{"nothing to set", turnctl.Program(), "", []string{"scheduler", "set"}, 2,
			"give --poll-interval, --max-dispatches, or both"},
		{"poll too short", turnctl.Program(), "", []string{"scheduler", "set", "--poll-interval", "1ms"}, 2,
			"--poll-interval is 1ms: it must be 10ms to 1h"},
		{"too many dispatches", turnctl.Program(), "", []string{"scheduler", "set", "--max-dispatches", "10001"}, 2,
			"--max-dispatches is 10001"},
		{"no database", turnctl.Program(), "", []string{"turns"}, 1,
			"there is no database yet: no worker has run with the data folder"},
		{"no database for a message", enqueue.Program(), "", []string{"--agent", "a", "hi"}, 1,
			"there is no database yet"},
		{"bad setting", turnctl.Program(), "", []string{"turns", "--database-url", "nonsense"}, 2,
			"database_url (--database-url): it must be postgres://<user>:<password>@<host>:<port>/<database>, or pairs"},
		{"no URL", turnctl.Program(), "", []string{"turns", "--database-url", "postgres://a:%zz@b/c"}, 2,
			"it is not a valid URL: write postgres://<user>:<password>@<host>:<port>/<database>, with"},
		{"several bad settings", worker.Program(), "", []string{"--max-rounds", "21", "--worker-slots", "x"}, 2,
			"max_rounds (--max-rounds) is 21: it must be 1 to 20"},
		{"bounds against each other", worker.Program(), "", []string{"--lease-ttl", "100s"}, 2,
			"must be less than the lease of 1m40s"},
		{"worker takes no arguments", worker.Program(), "", []string{"start"}, 2, `unknown command "start"`},

		{"no agent", enqueue.Program(), "", []string{"hi"}, 2, "--agent is required: --agent NAME"},
		{"impossible agent", enqueue.Program(), "", []string{"--agent", "No Body", "hi"}, 2, `agent name "No Body"`},
		{"empty message", enqueue.Program(), "", []string{"--agent", "a", " "}, 2,
			"enqueue: message cannot be empty\n"},
		{"empty input", enqueue.Program(), " \n", []string{"--agent", "a"}, 2, "enqueue: message cannot be empty\n"},
		{"empty input by dash", enqueue.Program(), "", []string{"--agent", "a", "-"}, 2,
			"enqueue: message cannot be empty\n"},
		{"NUL", enqueue.Program(), "a\x00b", []string{"--agent", "a"}, 2, "the body has a NUL character at byte 1"},
		{"broken UTF-8", enqueue.Program(), "", []string{"--agent", "a", "\xff"}, 2, "the body is not valid UTF-8"},
		{"endless", enqueue.Program(), strings.Repeat("x", 16<<20+1), []string{"--agent", "a"}, 2,
			"the body has more than 16777216 bytes"},
		{"priority", enqueue.Program(), "", []string{"--agent", "a", "--priority", "1001", "hi"}, 2,
			"priority 1001 is outside -1000 to 1000"},
		{"empty key", enqueue.Program(), "", []string{"--agent", "a", "--key", "", "hi"}, 2, "--key is empty"},
		{"no trace context", enqueue.Program(), "", []string{"--agent", "a", "--trace-parent", "00-1-2-01", "hi"}, 2,
			`--trace-parent is "00-1-2-01": it must be a W3C traceparent`},
		{"empty conversation", enqueue.Program(), "", []string{"--agent", "a", "--conversation", "", "hi"}, 2,
			"--conversation is empty"},
		{"priority no number", enqueue.Program(), "", []string{"--agent", "a", "--priority", "high", "hi"}, 2,
			`--priority is "high": it must be a whole number`},
		{"timeout in words", enqueue.Program(), "", []string{"--agent", "a", "--wait-timeout", "soon", "hi"}, 2,
			"it must be a duration such as 90s"},
		{"pause without reason", turnctl.Program(), "", []string{"scheduler", "pause"}, 2,
			"turnctl scheduler pause REASON"},
		{"key", enqueue.Program(), "", []string{"--agent", "a", "--key", strings.Repeat("k", 201), "hi"}, 2,
			"the idempotency key is longer than 200 bytes"},
		{"time for no wait", enqueue.Program(), "", []string{"--agent", "a", "--wait-timeout", "5s", "hi"}, 2,
			"add --wait, or omit --wait-timeout"},
		{"negative wait", enqueue.Program(), "", []string{"--agent", "a", "--wait-timeout", "-1s", "hi"}, 2,
			"it must not be negative"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, c.program, nowhere(t), c.stdin, c.args...)
			if got.code != c.code || !strings.Contains(got.stderr, c.want) {
				t.Errorf("exit code %d, want %d; stderr:\n%s\nwant in it: %s", got.code, c.code, got.stderr, c.want)
			}
			if got.stdout != "" {
				t.Errorf("stdout: %s", got.stdout)
			}
		})
	}
}

// TestWorkerWithFaultyAgentsMakesNoDatabase checks that errors in agents are reported before a database is created.
func TestWorkerWithFaultyAgentsMakesNoDatabase(t *testing.T) {
	env := nowhere(t)
	for name, text := range map[string]string{"none": "",
		"a tool that is not there": "---\ntools: [weather, rain]\n---\nHello.\n"} {
		t.Run(name, func(t *testing.T) {
			if text != "" {
				env["TURNKEEPER_AGENTS_DIR"] = t.TempDir()
				if err := os.WriteFile(filepath.Join(env["TURNKEEPER_AGENTS_DIR"], "odd.md"), []byte(text),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := run(t, worker.Program(), env, "")
			if got.code != 2 {
				t.Errorf("exit code %d: %s", got.code, got.stderr)
			}
			for _, want := range map[string][]string{
				"none": {"does not exist"}, "a tool that is not there": {`there is no tool "weather"`,
					`there is no tool "rain"`},
			}[name] {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("it does not say %q: %s", want, got.stderr)
				}
			}
			if _, err := os.Stat(env["TURNKEEPER_DATA_DIR"]); !os.IsNotExist(err) {
				t.Errorf("a database was made: %v", err)
			}
		})
	}
}

func TestMisspeltVariablesAreReported(t *testing.T) {
	env := nowhere(t)
	const want = "unknown setting TURNKEEPER_MAX_ROUND; did you mean TURNKEEPER_MAX_ROUNDS?"
	for name, program := range map[string]shell.Program{"worker": worker.Program(), "doctor": turnctl.Program(),
		"check": turnctl.Program()} {
		var said bytes.Buffer
		args := map[string][]string{"doctor": {"doctor", "-o", "json"}, "check": {"agents", "check", "-o",
			"json"}}[name]
		program.Run(t.Context(), t.Context(), shell.Environment{
			Args: args, Stdout: &said, Stderr: &said, Variables: []string{"HOME", "TURNKEEPER_CONFIG",
				"TURNKEEPER_MAX_ROUND"},
			Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		})
		if !strings.Contains(said.String(), want) || strings.Contains(said.String(), "setting TURNKEEPER_CONFIG") {
			t.Errorf("%s said: %s", name, said.String())
		}
	}
}

func TestHelp(t *testing.T) {
	cases := []struct {
		name    string
		program shell.Program
		args    []string
		want    []string
	}{
		{"worker", worker.Program(), []string{"--help"}, []string{"Exit codes:", "--max-rounds",
			"TURNKEEPER_MAX_ROUNDS", "Settings: Bounds of a turn:", "Prefer the variable"}},
		{"enqueue", enqueue.Program(), []string{"-h"}, []string{"Exit codes:", "--wait-timeout", "--database-url",
			"no reply in time"}},
		{"turnctl", turnctl.Program(), nil, []string{"Commands:", "doctor", "Exit codes:"}},
		{"a command", turnctl.Program(), []string{"turns", "--help"}, []string{"--limit", "-o, --output"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, c.program, nil, "", c.args...)
			if got.code != 0 || got.stderr != "" {
				t.Errorf("exit code %d, stderr %s", got.code, got.stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(got.stdout, want) {
					t.Errorf("the help lacks %q:\n%s", want, got.stdout)
				}
			}
		})
	}
	for _, p := range []shell.Program{worker.Program(), enqueue.Program(), turnctl.Program()} {
		if got := run(t, p, nil, "", "--version"); got.code != 0 || len(strings.Fields(got.stdout)) < 2 ||
			strings.HasSuffix(got.stdout, " devel\n") {
			t.Errorf("--version: %+v", got)
		}
	}
}

// TestExitCodesOfTurnctl checks that the help of turnctl lists every exit code listed by one of its commands.
func TestExitCodesOfTurnctl(t *testing.T) {
	reference := turnctl.Reference()
	head, _, _ := strings.Cut(reference, "\n## turnctl agents\n")
	codes := regexp.MustCompile(`(?m)^  (\d+)  `)
	listed := map[string]bool{}
	for _, code := range codes.FindAllString(head, -1) {
		listed[code] = true
	}
	if len(listed) < 7 {
		t.Errorf("the help of turnctl lists %v", listed)
	}
	for _, code := range codes.FindAllString(reference, -1) {
		if !listed[code] {
			t.Errorf("a command may end with %s, and the help of turnctl does not say so", strings.TrimSpace(code))
		}
	}
}

// TestLookingMakesNoDatabase checks that read-only commands create no database, even if the data folder exists.
func TestLookingMakesNoDatabase(t *testing.T) {
	env := nowhere(t)
	env["TURNKEEPER_DATA_DIR"] = t.TempDir()
	for _, args := range [][]string{{"turns"}, {"doctor"}} {
		got := run(t, turnctl.Program(), env, "", args...)
		if got.code != 1 || !strings.Contains(strings.Join(strings.Fields(got.stdout+got.stderr), " "),
			"there is no database yet") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if made, err := os.ReadDir(env["TURNKEEPER_DATA_DIR"]); err != nil || len(made) > 0 {
		t.Errorf("%v, %v", made, err)
	}
}

// TestUnreadableDatabaseURL checks that an invalid database URL causes one readable error, without the URL.
func TestUnreadableDatabaseURL(t *testing.T) {
	env := nowhere(t)
	for _, end := range []string{"h:99999/d", "h/d?sslmode=foo"} {
		env["DATABASE_URL"] = "postgres://user:hunter2secret@" + end
		got := run(t, turnctl.Program(), env, "", "turns")
		const want = "turnctl: DATABASE_URL cannot be parsed: check its port, its sslmode and other parameters; its form is postgres://<user>:<password>@<host>:<port>/<database>\n"
		if got.code != 1 || got.stderr != want {
			t.Errorf("%s: %+v", end, got)
		}
	}
}

// TestErrorsHoldNoSecret checks that errors of a failing program do not contain secrets from its settings.
func TestErrorsHoldNoSecret(t *testing.T) {
	env := nowhere(t)
	env["DATABASE_URL"] = "postgres://user:hunter2secret@127.0.0.1:1/db?connect_timeout=1"
	for _, args := range [][]string{{"turns"}, {"doctor"}} {
		got := run(t, turnctl.Program(), env, "", args...)
		if got.code != 1 || strings.Contains(got.stdout+got.stderr, "hunter2secret") {
			t.Errorf("%v: exit code %d\n%s%s", args, got.code, got.stdout, got.stderr)
		}
	}
}

// TestErrorsAreMasked checks that errors mask a secret that the user typed as an argument.
func TestErrorsAreMasked(t *testing.T) {
	env, _ := somewhere(t)
	env["OPENAI_API_KEY"] = "sk-canary-0123456789"
	got := run(t, enqueue.Program(), env, "", "--agent", "sk-canary-0123456789", "hi")
	if got.code != 2 || !strings.Contains(got.stderr, "unknown agent") || strings.Contains(got.stderr, "canary") {
		t.Errorf("%+v", got)
	}
}

func TestAgentsCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(t *testing.T, args ...string) (code int, report struct{ Agents, Problems, Warnings []string }) {
		got := run(t, turnctl.Program(), nowhere(t), "", append([]string{"agents", "check", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
		return got.code, report
	}
	t.Run("no folder", func(t *testing.T) {
		if code, report := check(t); code != 1 || len(report.Problems) != 1 || !strings.Contains(report.Problems[0],
			"does not exist") {
			t.Errorf("exit code %d, %+v", code, report)
		}
	})
	t.Run("empty folder", func(t *testing.T) {
		if code, report := check(t, dir); code != 1 || len(report.Problems) != 1 ||
			!strings.Contains(report.Problems[0], "has no agent") {
			t.Errorf("exit code %d, %+v", code, report)
		}
	})
	t.Run("a good agent", func(t *testing.T) {
		write("good.md", "---\ntools: [clock, note_write]\n---\nYou are good.\n")
		if code, report := check(t, dir); code != 0 || len(report.Problems) != 0 || len(report.Agents) != 1 {
			t.Errorf("exit code %d, %+v", code, report)
		}
	})
	t.Run("what may not be meant is no fault", func(t *testing.T) {
		odd := t.TempDir()
		text := "---\ntools: [clok, weather, clock]\nroot: nowhere\n---\nHello.\n"
		for _, name := range []string{"odd.md", "LOUD.MD"} {
			if err := os.WriteFile(filepath.Join(odd, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, report := check(t, odd)
		if code != 0 || len(report.Problems) != 0 || len(report.Agents) != 1 || len(report.Warnings) != 4 {
			t.Fatalf("exit code %d, %+v", code, report)
		}
		for i, want := range []string{
			"LOUD.MD: this file is ignored",
			`odd.md:2: the tool "clok" is neither built in nor in the config file (did you mean "clock"?)`,
			`odd.md:2: the tool "weather" is neither built in nor in the config file`,
			"nowhere, which does not exist here",
		} {
			if !strings.Contains(report.Warnings[i], want) {
				t.Errorf("warning %q, want in it %q", report.Warnings[i], want)
			}
		}
	})
	t.Run("file tools without a folder", func(t *testing.T) {
		for _, tool := range []string{"read_file", "list_files", "write_file"} {
			bare := t.TempDir()
			if err := os.WriteFile(filepath.Join(bare, "bare.md"),
				[]byte("---\ntools: [clock, "+tool+"]\n---\nHello.\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			code, report := check(t, bare)
			if code != 0 || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0],
				"bare.md:2: "+tool+" needs a folder: set root, or each of its calls will fail") {
				t.Errorf("exit code %d, %+v", code, report)
			}
		}
	})
	t.Run("one file, with faults of form and others", func(t *testing.T) {
		folder := t.TempDir()
		file := filepath.Join(folder, "bad.md")
		text :=
			"---\nmodel: acme/large\nmax_rounds: 99\ntools: [clok,\n  read_file]\nroot: nowhere\nmodle: x\nmax_duration: 235s\nbudget:\n  turn_tokens: 5\n" +
				"fallback_models: [demo/none]\nsub_agents: [ghost, bad2]\nmcp_servers:\n  shop: [buy]\nlevels:\n  low: {model: acme/small}\n---\n"
		for name, text := range map[string]string{"bad.md": text, "bad2.md": "---\nlane: x\n---\nHi.\n",
			"other.demo.yaml": "steps: x\n"} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, report := check(t, file)
		if code != 1 || len(report.Agents) != 0 {
			t.Errorf("exit code %d, %+v", code, report)
		}
		for _, told := range []struct {
			got  []string
			want []string
		}{
			{report.Problems, []string{
				`:2: the model "acme/large" needs the provider`, ":3: max_rounds is 99", `:7: unknown key "modle"`,
				":8: max_duration 3m55s plus the lease margin",
				":10: budget.turn_tokens is 5", `:11: the model "demo/none" wants the demo script`,
				`:14: mcp_servers has "shop"`, `:16: the model "acme/small" needs the provider`,
				":17: the system prompt is empty",
			}},
			{report.Warnings, []string{`:12: sub_agents has "ghost"`, `:4: the tool "clok" is neither`,
				":6: root is "}},
		} {
			if len(told.got) != len(told.want) {
				t.Fatalf("it tells of %q", told.got)
			}
			for i, want := range told.want {
				if !strings.HasPrefix(told.got[i], file+want) {
					t.Errorf("it tells %q, want %q first in it", told.got[i], want)
				}
			}
		}
		if got := run(t, turnctl.Program(), nowhere(t), "", "agents", "check", file); !strings.HasSuffix(got.stdout,
			"\n9 errors in "+file+"\n") {
			t.Errorf("%+v", got)
		}
		for missing, want := range map[string]string{
			"none.md": "none.md: the file cannot be read: no such file or directory", "none": "none does not exist"} {
			if code, report := check(t, filepath.Join(folder, missing)); code != 1 || len(report.Problems) != 1 ||
				!strings.Contains(report.Problems[0], want) {
				t.Errorf("%s: exit code %d, %+v", missing, code, report)
			}
		}
	})
	t.Run("every fault is told", func(t *testing.T) {
		write("keys.md", "---\nmodell: demo/script\nmax_rounds: 99\n---\nHello.\n")
		write("spend.md", "---\nbudget: {turn_tokens: 2000}\n---\nHello.\n")
		write("models.md", "---\nmodel: acme/large\n---\nHello.\n")
		write("bounds.md", "---\nmax_duration: 235s\n---\nHello.\n")
		code, report := check(t, dir)
		if code != 1 || len(report.Agents) != 1 {
			t.Errorf("exit code %d, agents %v", code, report.Agents)
		}
		all := strings.Join(report.Problems, "\n")
		for _, want := range []string{"keys.md:2:", "keys.md:3:", "is 2000: it must be more than the 4096 tokens",
			`"acme"`, "bounds.md", "lease"} {
			if !strings.Contains(all, want) {
				t.Errorf("no problem tells %q:\n%s", want, all)
			}
		}
	})
}

// TestTheHelpOfEachCommand compares the help of the worker's and enqueue's commands with testdata. (docs/turnctl.md has
// that of turnctl.)
func TestTheHelpOfEachCommand(t *testing.T) {
	var all strings.Builder
	for _, p := range []shell.Program{worker.Program(), enqueue.Program()} {
		var walk func(*cobra.Command)
		walk = func(cmd *cobra.Command) {
			got := run(t, p, nil, "", append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
			if got.code != 0 || got.stderr != "" {
				t.Errorf("%s --help: exit code %d, %s", cmd.CommandPath(), got.code, got.stderr)
			}
			fmt.Fprintf(&all, "$ %s --help\n%s\n", cmd.CommandPath(), got.stdout)
			for _, sub := range cmd.Commands() {
				if !sub.Hidden {
					walk(sub)
				}
			}
		}
		walk(p.Tree())
	}
	golden.File(t, "testdata/help.txt", all.String())
}
