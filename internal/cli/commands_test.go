package cli_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/clitest"
	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/testrun"
)

// commandRows are the commands that TestEveryCommand runs one after the other on a rich database, by the file that
// shows them.
var commandRows = []struct {
	file string
	rows []string // arguments of turnctl; "-o json" is tried too, unless the row begins with "once "
}{
	{"turns", []string{"turns --limit 8", "turns --agent watcher --user anna --state running",
		"turns --before 20 --limit 1"}},
	{"inbox", []string{"inbox --limit 8", "inbox --agent watcher --user anna --state waiting",
		"inbox --before 20 --limit 1"}},
	{"outbox", []string{
		"outbox --limit 6", "outbox --agent watcher --user anna", "once outbox --before 5 --limit 2",
		"once outbox --after 5 --limit 2",
		"once outbox --sub-agents=false --limit 1",
	}},
	{"asks", []string{
		"asks --state all --limit 7", "asks --agent echo --user anna --state expired", "once asks --turn 999",
		"once asks --before 3 --state all --limit 1", "asks show 1", "asks show 4",
		"once asks show 999", "once asks approve 1 --as cat --comment fine --hash hash1",
		`once asks approve 1 --as cat --comment fine`,
		"once asks deny 7 --as cat --comment no",
		`once asks approve 13 --as cat --arguments {"n":2}`, "once asks answer 19 7 --as cat --json",
		"once asks show 7",
		"asks approve 14 --as ann", "asks approve 14", "asks deny 25 --comment no", "asks approve 31",
		"asks answer 22 7 --as bob", "once asks approve x", "once asks answer 1 x",
		"once asks --turn 31 --state all --limit 2", "once asks deny 999",
	}},
	{"lanes", []string{"lanes --limit 8", "once lanes --agent watcher --limit 2"}},
	{"schedules", []string{
		"schedules", "once schedules pause watcher --reason repairs", "once schedules set echo/nightly 0_6_*_*_*",
		"once schedules",
		"once schedules resume echo/nightly",
		"once schedules reset echo/nightly", "once schedules run watcher/default", "once schedules",
		"once schedules resume watcher", "once schedules set watcher 0_7_*_*_*", "once schedules reset watcher",
		"schedules pause watcher --reason repairs",
		"schedules run watcher", "once schedules run echo/gone", "once schedules pause echo",
		"once schedules set none 0_6_*_*_*",
	}},
	{"scheduler", []string{
		"scheduler", "once scheduler pause for_repairs", "scheduler status", "once scheduler resume",
		"once scheduler resume --now",
		"once scheduler set --poll-interval 9s --max-dispatches 77", "scheduler status",
		"scheduler pause again", "scheduler resume", "scheduler set --max-dispatches 78",
		"scheduler set --poll-interval 8s",
	}},
	{"agents", []string{"agents", "agents show echo", "once agents show old", "once agents check", "agents check none",
		"once agents show none", "agents show watcher"}},
	{"output", []string{
		"output k3v9x2m4q7ab", "once output k3v9x2m4q7ab --raw", "output k3v9x2m4q7ab --slice 4:9",
		"once output k3v9x2m4q7ab --raw --slice :3", "output p3v9x2m4q7ab",
		"once output none",
	}},
	{"workers", []string{"workers"}},
	{"migrate", []string{"once migrate", "migrate --status"}},
	{"models", []string{"models"}},
	{"levels", []string{
		"levels", "once levels pin critical --agent echo --by cat --reason alarm --for 1h",
		"once levels pin low --by cat --reason all",
		"once levels", "once levels unpin --agent echo",
		"once levels unpin", "once levels", "levels pin low --agent echo --reason why", "levels unpin --agent echo",
	}},
	{"set-aside", []string{"set-aside", "once set-aside retry message 31", "once set-aside retry call 3/1/2 -o json",
		"once set-aside retry", "once set-aside", "once set-aside retry message 30", "once set-aside retry tick",
		"once set-aside retry x 1"}},
	{"tokens", []string{
		"tokens list", "once tokens revoke first", "once tokens revoke first", "once tokens",
	}},
	{"webhooks", []string{
		"webhooks list", "webhooks show hook --limit 7",
		"once webhooks show hook --agent watcher --user anna --state dead",
		"once webhooks show hook --before 9 --limit 1",
		"once webhooks show paused", "once webhooks pause idle a_move", "once webhooks resume paused",
		"once webhooks redeliver hook 3", "once webhooks redeliver hook --dead",
		"once webhooks show hook --limit 4", "once webhooks remove idle", "once webhooks",
		"webhooks pause hook a_move", "webhooks resume hook", "webhooks redeliver hook 6",
		"webhooks redeliver hook --dead",
		"once webhooks redeliver hook 9999", "webhooks remove paused", "once webhooks redeliver none 1",
	}},
	{"mcp", []string{
		"mcp list", "once mcp list files", "mcp logins", "once mcp pin files write --hash none",
		"once mcp pin files write",
		"once mcp forget mail", "once mcp list",
		"mcp pin files", "once mcp pin files none", "mcp forget files", "once mcp forget files", "once mcp pin none",
	}},
	{"explain", []string{"once explain 1", "once explain 5", "explain latest --agent watcher", "explain --message 40",
		"once explain 999", "once explain --message 999", "explain --message 48", "explain --message 2"}},
	{"show", []string{"show 1", "once show 1 --full", "once show latest --agent watcher", "once show 1 --request 1",
		"once show 999", "show 5 --full", "once show 1 --request 9", "once show latest", "once show x"}},
	{"events", []string{"events 1", "once events 1 --after 3", "once events latest --agent echo",
		"once events 1 --follow", "once events 999", "events 60", "events 60 --after 1", "events 60 --follow",
		"once events 60 --follow --after 3"}},
	{"cancel", []string{
		"once cancel 27 --reason no_need", "once cancel latest --agent watcher", "once cancel --message 47",
		"once cancel --message 1",
		"once explain 27", "once finish 28 --reason enough",
		"once finish --message 29", "once finish latest --agent echo", "once explain 28",
		"cancel 21 --reason a_reason", "finish 22 --reason a_reason", "cancel --message 46", "cancel 999",
		"finish --message 999", "finish 1",
	}},
	{"retry", []string{
		"once retry 12", "once retry 14 --anyway", "once retry --turn 11", "once retry --turn latest --agent watcher",
		"once retry --failed --agent watcher --since 10000h",
		"once retry --failed --error-class transport", "once inbox --limit 4",
		"retry 12 --anyway", "once retry 48", "retry 999", "once retry --turn 999", "retry --failed", "once retry 46",
		"retry --failed --agent none",
	}},
	{"retire", []string{"once agents retire watcher", "once agents retire watcher --cancel-waiting",
		"once agents restore watcher",
		"once agents restore nobody", "agents retire echo", "agents restore echo", "once agents retire nobody"}},
	{"top", []string{"top --once --limit 6"}},
	{"purge", []string{
		"purge --older-than 240h --dry-run", "once purge --agent watcher --user anna --conversation failed --dry-run",
		"once purge --agent watcher --notes --dry-run",
		"once purge --agent watcher --user anna --undelivered", "once purge --agent echo --notes --undelivered",
		"once purge --agent echo",
		"purge --user bert --undelivered", "purge --agent none", "purge --older-than 1h",
	}},
	{"last", []string{"once levels unpin --agent watcher", "levels unpin", "once tokens revoke annas -o json",
		"workers", "once inbox --limit 1"}},
}

// exempt lists the commands and flags without a row, each with the reason.
var exempt = map[string]string{
	"turnctl check": "it lists in no order what these rows break", "turnctl check --at-rest": "likewise",
	"turnctl init": "TestInit", "turnctl version": "the version of the build", "turnctl policy test": "TestPolicyTest",
	"turnctl tools call":       "TestToolsCall",
	"turnctl tools call --yes": "TestToolsCall", "turnctl doctor": "TestDoctorOfEverything",
	"turnctl doctor --probe": "it asks models",
	"turnctl tokens create":  "TestTokens: it shows a secret", "turnctl tokens create --agents": "TestTokens",
	"turnctl tokens create --expires": "TestTokens",
	"turnctl tokens create --scopes":  "TestTokens", "turnctl tokens create --user": "TestTokens",
	"turnctl webhooks secret": "it shows a secret", "turnctl mcp key": "it shows a secret",
	"turnctl mcp login": "it needs a server", "turnctl mcp login --paste": "it needs a server",
	"turnctl mcp login --within": "it needs a server", "turnctl mcp logout": "it needs a server",
	"turnctl outbox --follow": "TestOutboxIsFollowed", "turnctl top --interval": "it needs a terminal",
	"turnctl asks answer --comment": "as of deny", "turnctl asks answer --hash": "as of approve",
	"turnctl asks deny --hash": "as of approve", "turnctl mcp": "help", "turnctl tools": "help",
}

// TestEveryCommand compares what each command prints, as text and as JSON, with testdata: a column with another field's
// value, a row that is not the one asked for, and a sentence that is missing are seen.
func TestEveryCommand(t *testing.T) {
	testrun.Guard(t)
	t.Parallel()
	r := newRich(t)
	for _, group := range commandRows {
		t.Run(group.file, func(t *testing.T) {
			r.t = t
			var all strings.Builder
			for _, row := range group.rows {
				command, once := strings.CutPrefix(row, "once ")
				forms := [][]string{nil, {"-o", "json"}}
				if once {
					forms = forms[:1]
				}
				for _, form := range forms {
					args := strings.Fields(command)
					for i, arg := range args {
						if strings.Contains(arg, "_") && !strings.Contains(arg, "-") {
							args[i] = strings.ReplaceAll(arg, "_", " ")
						}
					}
					got := r.run(turnctl.Program(), append(args, form...)...)
					clitest.Harmless(t, got.stdout+got.stderr)
					fmt.Fprintf(&all, "$ turnctl %s\n%s", strings.Join(append(args, form...), " "), r.same(got.stdout))
					if got.stderr != "" {
						fmt.Fprintf(&all, "stderr: %s", r.same(got.stderr))
					}
					fmt.Fprintf(&all, "exit code %d\n\n", got.code)
				}
			}
			golden.File(t, "testdata/commands/"+group.file+".txt", all.String())
		})
	}
}

// each returns what visit calls its function with.
func each[T any](visit func(func(T))) (all []T) {
	visit(func(one T) { all = append(all, one) })
	return all
}

// TestEveryCommandHasARow compares the rows with the commands and flags of turnctl.
func TestEveryCommandHasARow(t *testing.T) {
	root := turnctl.Program().Tree()
	has := map[string]bool{}
	for _, group := range commandRows {
		for _, row := range group.rows {
			args := strings.Fields(strings.TrimPrefix(row, "once "))
			cmd, _, err := root.Find(args)
			if err != nil {
				t.Errorf("%s: %v", row, err)
				continue
			}
			has[cmd.CommandPath()] = true
			for _, arg := range args {
				if name, _, _ := strings.Cut(arg, "="); strings.HasPrefix(name, "--") {
					has[cmd.CommandPath()+" "+name] = true
				}
			}
		}
	}
	var walk func(*cobra.Command)
	want := func(what string) {
		if reason, other := exempt[what]; has[what] == other && reason != "" || !has[what] && !other {
			t.Errorf("%s must have a row, or be named with a reason: %q", what, reason)
		}
	}
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && cmd.HasParent() {
			want(cmd.CommandPath())
			for _, f := range each(cmd.LocalNonPersistentFlags().VisitAll) {
				if f.Name != "help" && !f.Hidden {
					want(cmd.CommandPath() + " --" + f.Name)
				}
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if n := len(has); n < 80 {
		t.Errorf("only %d commands and flags have a row", n)
	}
}

// firstArguments are the first arguments of commands whose second one is completed by them.
var firstArguments = map[string]string{"turnctl mcp pin": "files", "turnctl tools call": "spare",
	"turnctl set-aside retry": "message"}

// TestEveryCompletion compares what the shell offers for each argument and flag of each command with testdata: at most
// four values, with their descriptions, and how many there are.
func TestEveryCompletion(t *testing.T) {
	testrun.Guard(t)
	t.Parallel()
	r := newRich(t)
	var all strings.Builder
	for _, p := range []shell.Program{turnctl.Program(), enqueue.Program()} {
		var walk func(*cobra.Command)
		offer := func(cmd *cobra.Command, what string, args ...string) {
			path := strings.Fields(cmd.CommandPath())[1:]
			fmt.Fprintf(&all, "%s %s: %s\n", cmd.CommandPath(), what,
				r.completed(p, append(append([]string{"__complete"}, path...), args...)))
		}
		walk = func(cmd *cobra.Command) {
			if cmd.Runnable() {
				offer(cmd, "ARGUMENT", "")
				if first := firstArguments[cmd.CommandPath()]; first != "" {
					offer(cmd, first+" ARGUMENT", first, "")
				}
				for _, f := range each(cmd.LocalNonPersistentFlags().VisitAll) {
					if _, completed := cmd.GetFlagCompletionFunc(f.Name); completed {
						offer(cmd, "--"+f.Name, "--"+f.Name, "")
					} else if f.Name != "help" && f.Value.Type() != "bool" && !f.Hidden {
						fmt.Fprintf(&all, "%s --%s: anything\n", cmd.CommandPath(), f.Name)
					}
				}
			}
			for _, sub := range cmd.Commands() {
				walk(sub)
			}
		}
		walk(p.Tree())
	}
	golden.File(t, "testdata/commands/completions.txt", all.String())
}

// completed returns the completions that the shell offers. It retries an empty list, because a busy database may not
// answer within the second that a completion has.
func (r *rich) completed(p shell.Program, args []string) string {
	r.t.Helper()
	var lines []string
	for range 5 {
		got := r.run(p, args...)
		lines = strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
		if got.code != 0 {
			r.t.Errorf("%q: %+v", args, got)
		}
		if len(lines) > 1 || strings.HasPrefix(lines[0], ":0") {
			break
		}
	}
	directive := map[string]string{":4": "", ":0": " or a file"}[lines[len(lines)-1]]
	values := lines[:len(lines)-1]
	if len(values) == 0 {
		return "nothing" + directive
	}
	shown := strings.ReplaceAll(strings.Join(values[:min(len(values), 4)], ", "), "\t", " = ")
	return fmt.Sprintf("%d: %s%s", len(values), shown, directive)
}

// TestDoctorOfEverything compares what doctor finds in the rich database with testdata: each check but those of the
// machine.
func TestDoctorOfEverything(t *testing.T) {
	testrun.Guard(t)
	t.Parallel()
	r := newRich(t)
	machine := []string{"database", "encoding", "clock", "connections", "fsync", "synchronous_commit",
		"full_page_writes", "schema",
		"private database"}
	got := r.run(turnctl.Program(), "doctor", "-o", "json")
	var d diagnosis
	if err := json.Unmarshal([]byte(got.stdout), &d); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	d.Checks = slices.DeleteFunc(d.Checks, func(f finding) bool { return slices.Contains(machine, f.Name) })
	golden.File(t, "testdata/commands/doctor.txt", r.same(d.String()))
}
