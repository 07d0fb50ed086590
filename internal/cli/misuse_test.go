package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/cli/worker"
	"turnkeeper/internal/golden"
)

// oddValues are values for flags, by type: wrong ones, and those at limits.
var oddValues = map[string][]string{
	"int":         {"x", "-1", "0", "100", "101", "1001", "10001", "-1001"},
	"int64":       {"x", "-1", "0", "1"},
	"duration":    {"x", "-1s", "0", "9ms", "10ms", "99ms", "100ms", "1h", "3601s", "88000h"},
	"string":      {"", "a\nb", "/x", "1:0"},
	"stringSlice": {"", "x", "send", "send,answer"},
	"bool":        {"x"},
}

// unrun are commands that act without a database.
var unrun = map[string]bool{
	"turnctl init": true, "turnctl mcp key": true, "turnctl completion": true, "turnctl help": true, "worker": true,
	"worker bench":    true,
	"turnctl migrate": true,
}

// TestEveryMisuse gives each command too few and too many arguments, and each flag odd values, without a database.
// It compares what is
// refused, and how, with testdata. All else wants a database.
func TestEveryMisuse(t *testing.T) {
	t.Parallel()
	env := nowhere(t)
	var b strings.Builder
	for _, p := range []shell.Program{turnctl.Program(), enqueue.Program(), worker.Program()} {
		try := func(what string, args ...string) {
			got := run(t, p, env, "", args...)
			said, _, _ := strings.Cut(got.stderr, "\n")
			for _, name := range []string{"TURNKEEPER_DATA_DIR", "TURNKEEPER_AGENTS_DIR", "TURNKEEPER_CONFIG"} {
				said = strings.ReplaceAll(said, env[name], "<"+name+">")
			}
			if got.code != 1 || !strings.Contains(said, "there is no database yet") {
				fmt.Fprintf(&b, "  %s: %d %s\n", what, got.code, said)
			}
		}
		var walk func(*cobra.Command)
		walk = func(cmd *cobra.Command) {
			for _, sub := range cmd.Commands() {
				walk(sub)
			}
			if unrun[cmd.CommandPath()] || cmd.HasParent() && cmd.Parent().Name() == "completion" || !cmd.Runnable() {
				return
			}
			path := strings.Fields(cmd.CommandPath())[1:]
			fmt.Fprintln(&b, cmd.CommandPath())
			var enough []string
			for n := range 4 {
				few := strings.Fields(strings.Repeat("7 ", n))
				if err := cmd.ValidateArgs(few); err == nil && (enough == nil || len(enough) == 0 && n > 0 &&
					cmd.ValidateArgs(nil) != nil) {
					enough = few
				}
				try(fmt.Sprintf("%d arguments", n), slices.Concat(path, few)...)
			}
			base := slices.Concat(path, enough)
			if p := cmd.CommandPath(); p == "enqueue" {
				base = []string{"--agent", "echo", "hi"}
			}
			for _, f := range each(cmd.LocalNonPersistentFlags().VisitAll) {
				if f.Name == "help" || f.Name == "version" {
					continue
				}
				for _, value := range oddValues[f.Value.Type()] {
					try(fmt.Sprintf("--%s=%q", f.Name, value), slices.Concat(base,
						[]string{"--" + f.Name + "=" + value})...)
				}
			}
		}
		walk(p.Tree())
	}
	golden.File(t, "testdata/misuse.txt", b.String())
}
