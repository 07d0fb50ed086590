package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/cli/worker"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/operate"
)

// TestCompletionOfNames checks the completion of ids and names from the database and the settings.
func TestCompletionOfNames(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	dir := env["TURNKEEPER_AGENTS_DIR"]
	s.registerFile(dir, "spare",
		"---\nmodel: demo/script\ntools: [clock, patch_output, get_continuation, read_file]\nmcp_servers: {files: [read]}\n---\nYou answer.\n", "demo/script")
	if err := os.WriteFile(env["TURNKEEPER_CONFIG"], []byte("mcp_servers: {files: {command: [files]}}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s.turn("Hello.")
	if _, err := s.Enqueue(t.Context(), turnkeeper.Submission{Agent: "watcher", Conversation: "anna",
		Body: "Look."}); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterWebhook(t.Context(), outbox.Webhook{Name: "shop", Origin: "https://shop"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program shell.Program
		args    []string
		want    string // the first word of each line, joined by spaces
	}{
		{turnctl.Program(), []string{"show", ""}, "latest 1"},
		{turnctl.Program(), []string{"explain", "la"}, "latest"},
		{turnctl.Program(), []string{"show", "1", ""}, ""},
		{turnctl.Program(), []string{"cancel", "--message", ""}, "2 1"},
		{turnctl.Program(), []string{"finish", "--message", ""}, "2 1"},
		{turnctl.Program(), []string{"finish", "la"}, "latest"},
		{turnctl.Program(), []string{"retry", "--agent", "watcher", ""}, "2"},
		{turnctl.Program(), []string{"turns", "--agent", ""}, "echo spare watcher"},
		{turnctl.Program(), []string{"purge", "--agent", "watcher", "--conversation", ""}, "anna"},
		{turnctl.Program(), []string{"schedules", "pause", "w"}, "watcher/default"},
		{turnctl.Program(), []string{"webhooks", "show", ""}, "shop"},
		{turnctl.Program(), []string{"mcp", "login", ""}, "files"},
		{turnctl.Program(), []string{"tools", "call", ""}, "echo spare"},
		{turnctl.Program(), []string{"tools", "call", "spare", ""}, "clock files__read read_file"},
		{turnctl.Program(), []string{"workers", ""}, ""},
		{enqueue.Program(), []string{"--agent", "e"}, "echo"},
		{enqueue.Program(), []string{"--agent", "watcher", "--conversation", ""}, "anna"},
	} {
		got := run(t, c.program, env, "", append([]string{"__complete"}, c.args...)...)
		var names []string
		for line := range strings.Lines(got.stdout) {
			if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(name, ":") {
				names = append(names, name)
			}
		}
		if all := strings.Join(names, " "); all != c.want || got.code != 0 {
			t.Errorf("%v: %q, want %q; exit code %d, %s", c.args, all, c.want, got.code, got.stderr)
		}
	}
}

// TestCompletionWithoutADatabase checks that without a database completion returns nothing, prints nothing and creates
// nothing.
func TestCompletionWithoutADatabase(t *testing.T) {
	private, away, wrong := nowhere(t), nowhere(t), nowhere(t)
	private["TURNKEEPER_DATA_DIR"] = t.TempDir()
	away["DATABASE_URL"] = "postgres://user:secret@127.0.0.1:1/none"
	wrong["DATABASE_URL"] = "nonsense"
	for name, env := range map[string]map[string]string{"private": private, "away": away, "wrong": wrong} {
		for _, args := range [][]string{{"show", ""}, {"turns", "--agent", ""}} {
			got := run(t, turnctl.Program(), env, "", append([]string{"__complete"}, args...)...)
			if got.code != 0 || got.stdout != ":4\n" ||
				got.stderr != "Completion ended with directive: ShellCompDirectiveNoFileComp\n" {
				t.Errorf("%s, %v: %+v", name, args, got)
			}
		}
	}
	if made, err := os.ReadDir(private["TURNKEEPER_DATA_DIR"]); err != nil || len(made) > 0 {
		t.Errorf("%v, %v", made, err)
	}
}

// TestMisspeltCommands checks that an unknown command is an error in every group of commands.
func TestMisspeltCommands(t *testing.T) {
	count := 0
	for name, program := range map[string]shell.Program{"turnctl": turnctl.Program(), "worker": worker.Program()} {
		for _, path := range groupsOf(program.Tree()) {
			count++
			args := strings.Fields(path + " zzz")[1:]
			got := run(t, program, nowhere(t), "", args...)
			if got.code != shell.ExitUsage || !strings.Contains(got.stderr, `unknown command "zzz"`) ||
				got.stdout != "" {
				t.Errorf("%s %v: %+v", name, args, got)
			}
		}
	}
	if count < 10 {
		t.Errorf("there are %d groups", count)
	}
	for _, args := range [][]string{{"help", "zzz"}, {"help", "turns", "zzz"}} {
		if got := run(t, turnctl.Program(), nowhere(t), "", args...); got.code != shell.ExitUsage ||
			!strings.Contains(got.stderr, "unknown command") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	for _, args := range [][]string{{"tools"}, {"completion"}, {"help", "turns"}, {"help"}} {
		if got := run(t, turnctl.Program(), nowhere(t), "", args...); got.code != 0 ||
			!strings.Contains(got.stdout, "Usage:") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// TestAMessageOfTheWordCompletion checks that a message can begin with the word completion or help.
func TestAMessageOfTheWordCompletion(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	for i, args := range [][]string{{"--agent", "echo", "completion", "bash"}, {"completion", "--agent", "echo"},
		{"--agent", "echo", "help", "me"}} {
		if got := run(t, enqueue.Program(), env, "", args...); got.code != 0 || !strings.HasSuffix(got.stdout,
			" accepted\n") {
			t.Errorf("%v: %+v", args, got)
			continue
		}
		m, err := store.Message(t.Context(), turnkeeper.MessageID(i+1))
		if want := []string{"completion bash", "completion", "help me"}[i]; err != nil || m.Body != want {
			t.Errorf("%v: %q, %v", args, m.Body, err)
		}
	}
	if got := run(t, enqueue.Program(), env, "", "--completion", "bash"); got.code != 0 || !strings.Contains(got.stdout,
		"__start_enqueue") {
		t.Errorf("%.300q %s", got.stdout, got.stderr)
	}
	if got := run(t, enqueue.Program(), env, "", "--completion", "sh"); got.code != shell.ExitUsage {
		t.Errorf("%+v", got)
	}
}

// TestToolsCall runs single tools as an agent would.
func TestToolsCall(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	dir := env["TURNKEEPER_AGENTS_DIR"]
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "long.txt"), []byte(strings.Repeat("é", 120)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.registerFile(dir, "clerk",
		"---\nmodel: demo/script\ntools: [clock, list_files, read_file, note_write, note_read, post, secretive, get_continuation]\nroot: "+root+"\nmax_tool_result_chars: 100\n---\nYou answer.\n")
	if err := os.WriteFile(filepath.Join(dir, "broken.md"), []byte("---\nmax_rounds: 99\n---\nHello.\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	settings := `tools:
  post: {description: Posts., command: [/bin/sh, -c, 'cat; exit 3'], effect: once}
  secretive: {description: Wants a secret., command: [/bin/cat], effect: none, env: {TOKEN: {env: SECRETIVE_TOKEN}}}
`
	if err := os.WriteFile(env["TURNKEEPER_CONFIG"], []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, stdin    string
		args           []string
		code           int
		stdout, stderr string // substrings; empty: no output
	}{
		{"a read", "", []string{"clerk", "clock"}, 0, "20", "clock, succeeded after "},
		{"a result that is cut", "", []string{"clerk", "read_file", `{"path": "long.txt"}`}, 0,
			"[... truncated: showing first 100 of ", "read_file, succeeded after "},
		{"what the agent may not read", "", []string{"clerk", "read_file", `{"path": "../x"}`}, 1, "tool error",
			"read_file, failed after "},
		{"arguments that do not fit", "", []string{"clerk", "read_file", `{"file": 1}`}, 2, "", "path"},
		{"arguments that are no JSON", "", []string{"clerk", "read_file", `{`}, 2, "", "JSON"},
		{"no such tool", "", []string{"clerk", "clok"}, 3, "",
			`agent clerk has no tool "clok" that can be called (did you mean "clock"?); it has clock, list_files, note_read, note_write, post, read_file, secretive`},
		{"a tool of turns only", "", []string{"clerk", "get_continuation"}, 3, "",
			`has no tool "get_continuation" that can be called`},
		{"a tool that it does not list", "", []string{"echo", "note_write"}, 3, "",
			`agent echo has no tool "note_write"`},
		{"no such agent", "", []string{"clerc", "clock"}, 3, "", `agent "clerc" has no file in `},
		{"an agent with faults", "", []string{"broken", "clock"}, 2, "", "max_rounds is 99"},
		{"an effect, unanswered", "", []string{"clerk", "note_write", `{"name": "a", "text": "x"}`}, 6, "",
			"nothing was run: answer y, or give --yes"},
		{"an effect, refused", "n\n", []string{"clerk", "note_write", `{"name": "a", "text": "x"}`}, 6, "",
			"note_write has an effect (once). Run it with"},
		{"nothing was done by that", "", []string{"clerk", "note_read", `{"name": "a"}`}, 1, "a",
			"note_read, failed after "},
		{"an effect, confirmed", "Yes\n", []string{"clerk", "note_write", `{"name": "a", "text": "x"}`}, 0, "a",
			"note_write, succeeded after "},
		{"it was done", "", []string{"clerk", "note_read", `{"name": "a"}`}, 0, "x", "note_read, succeeded after "},
		{"arguments of standard input", `{}`, []string{"clerk", "post", "-", "--yes"}, 1, "3", "post, failed after "},
		{"a secret that is missing", "", []string{"clerk", "secretive"}, 2, "", "SECRETIVE_TOKEN"},
		{"no tool", "", []string{"clerk"}, 2, "", "accepts between 2 and 3 arg"},
	} {
		got := run(t, turnctl.Program(), env, c.stdin, append([]string{"tools", "call"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stdout, c.stdout) || c.stdout == "" && got.stdout != "" ||
			!strings.Contains(got.stderr, c.stderr) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	type called struct {
		Outcome, Effect, Result string
		Cut                     bool
		Arguments               struct{ Path string }
	}
	got := decode[called](t, run(t, turnctl.Program(), env, "", "tools", "call", "clerk", "read_file",
		`{"path":"long.txt"}`, "-o", "json"))
	if got.Outcome != "succeeded" || got.Effect != "none" || !got.Cut || got.Arguments.Path != "long.txt" ||
		!strings.HasPrefix(got.Result, "éé") {
		t.Errorf("%+v", got)
	}
	if turns, err := s.Turns(t.Context(), operate.Page{}); err != nil || len(turns) != 0 {
		t.Errorf("%d turns, %v", len(turns), err)
	}
}

// groupsOf returns the paths of the commands with subcommands, including the completion command that cobra adds.
func groupsOf(root *cobra.Command) (paths []string) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.HasSubCommands() {
			paths = append(paths, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return append(paths, root.Name()+" completion")
}
