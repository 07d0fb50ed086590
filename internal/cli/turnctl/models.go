package turnctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func modelsCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "models", Short: "List the models that agents use, and which are down", Args: cobra.NoArgs,
		Long: `List the models that agents use, and those that have ever been down. A model is up,
down, probing (down, and a turn tries it), unknown (it answered none of the newest
1,000 model calls, so it may never have been called) or unused (no agent uses it any
more).

A model is down from the first turn that cannot use it: it is unreachable,
overloaded or unknown, or rejects the key or the quota. Messages of agents without
another model wait. One turn at a time tries the model, after pauses of up to two
minutes, or longer if the provider asks for it; its first answer releases all
waiting messages. A worker that starts or reloads its agents (SIGHUP) makes it tried
at once.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := func(ctx context.Context, store *operate.Store) ([]modelhealth.Health, error) {
				return store.Models(ctx)
			}
			return list(s, cmd, look, views.OfModel, showModels,
				"no models: a worker registers its agents' models when it starts")
		},
	}
}

func showModels(s *term.Screen, c term.Clock, models []modelhealth.Health) {
	t := term.NewTable("MODEL", "STATE", "DOWN SINCE", "NEXT TRY", ">FAILURES", "ERROR", "AGENTS")
	for _, m := range models {
		state := term.Cell{Text: m.State(), Tone: map[string]term.Tone{"up": term.Good, "down": term.Bad,
			"probing": term.Bad, "unknown": term.Warned, "unused": term.Dim}[m.State()]}
		next, failure := c.At(m.Until), "-"
		if m.Down() {
			failure = term.OneLine(m.ErrorClass+": "+m.Error, term.PreviewColumns)
		}
		if !m.Used() {
			next = "-"
		}
		if m.ProbeTurn != 0 {
			next = fmt.Sprintf("now, turn %d", m.ProbeTurn)
		}
		t.Add(m.Model, state, c.At(m.DownSince), next, fmt.Sprint(m.Failures), failure,
			term.OrDash(strings.Join(m.Agents, ", ")))
	}
	t.Print(s)
}
