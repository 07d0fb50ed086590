package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
)

func (s *session) modelsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "models", Short: "List the models that agents ask, and which are down", Args: cobra.NoArgs,
		Long: `List the models that agents ask, and those that were down at any time. A model is
down from the first turn that cannot use it: it cannot be reached, is overloaded,
refuses the key or the quota, or is not known. Messages of agents without another
model wait. One turn at a time tries the model, after pauses of up to two minutes
or as long as the provider asks for, and its first answer brings all others back.
A worker that starts or reads its agents again (SIGHUP) has it tried at once.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := func(ctx context.Context, store *storage.Store) ([]turnkeeper.ModelHealth, error) {
				return store.Models(ctx)
			}
			return list(s, cmd, look, views.OfModel, showModels, "no models: a worker registers those of its agents when it starts")
		},
	}
}

func showModels(s *screen, c clock, models []turnkeeper.ModelHealth) {
	t := newTable("MODEL", "STATE", "DOWN SINCE", "NEXT TRY", ">FAILURES", "ERROR", "AGENTS")
	for _, m := range models {
		state := cell{m.State(), good}
		next, failure := c.at(m.Until), "-"
		if m.Down() {
			state = cell{m.State(), bad}
			failure = oneLine(m.ErrorClass+": "+m.Error, previewColumns)
		}
		if m.ProbeTurn != 0 {
			next = fmt.Sprintf("now, turn %d", m.ProbeTurn)
		}
		t.add(m.Model, state, c.at(m.DownSince), next, fmt.Sprint(m.Failures), failure, orDash(strings.Join(m.Agents, ", ")))
	}
	t.print(s)
}

// examineModels tells of models that are down.
func examineModels(ctx context.Context, d *diagnosis, store *storage.Store, c clock) {
	models, err := store.Models(ctx)
	if err != nil {
		d.add(checkFail, "models", err.Error(), "")
		return
	}
	down := 0
	for _, m := range models {
		if !m.Down() {
			continue
		}
		down++
		d.add(checkWarn, "model "+m.Model, fmt.Sprintf("down since %s, %s, next try %s: %s", c.at(m.DownSince), m.ErrorClass, c.at(m.Until), oneLine(m.Error, 300)),
			"look at its provider, key and name; messages wait, and go on with its first answer. To try it at once: turnctl retry MESSAGE")
	}
	if down == 0 && len(models) > 0 {
		d.add(checkOK, "models", plural(len(models), "model")+" up", "")
	}
}
