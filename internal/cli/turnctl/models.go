package turnctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
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
			return list(s, cmd, look, views.OfModel, showModels, "no models: a worker registers its agents' models when it starts")
		},
	}
}

func showModels(s *term.Screen, c term.Clock, models []modelhealth.Health) {
	t := term.NewTable("MODEL", "STATE", "DOWN SINCE", "NEXT TRY", ">FAILURES", "ERROR", "AGENTS")
	for _, m := range models {
		state := term.Cell{Text: m.State(), Tone: map[string]term.Tone{"up": term.Good, "down": term.Bad, "probing": term.Bad, "unknown": term.Warned, "unused": term.Dim}[m.State()]}
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
		t.Add(m.Model, state, c.At(m.DownSince), next, fmt.Sprint(m.Failures), failure, term.OrDash(strings.Join(m.Agents, ", ")))
	}
	t.Print(s)
}

// examineModels reports models that are down. One that leaves an agent without a model is a failure.
func examineModels(ctx context.Context, d *diagnosis, store *operate.Store, c term.Clock) {
	models, err := store.Models(ctx)
	if err != nil {
		d.add(checkFail, "models", err.Error(), "")
		return
	}
	up := 0
	for _, m := range models {
		switch {
		case !m.Used():
			continue
		case !m.Down():
			up++
			continue
		}
		verdict, left := checkWarn, ""
		if stuck := withoutAnother(m, models); len(stuck) > 0 {
			left = "; " + words.Enumerate(stuck) + " " + verb(len(stuck), "has", "have") + " no other model that is up"
			if awaited := slices.ContainsFunc(stuck, func(agent string) bool { return waitsForModel(ctx, store, agent, m.Model) }); awaited {
				verdict, left = checkFail, left+", and messages wait"
			}
		}
		d.add(verdict, "model "+m.Model, fmt.Sprintf("down since %s, %s: %s%s", c.At(m.DownSince), m.ErrorClass, term.OneLine(m.Error, 300), left), adviceOfModel(m, c))
	}
	if up > 0 {
		d.add(checkOK, "models", term.Plural(up, "model")+" in use and not down", "")
	}
}

// waitsForModel reports whether one of the newest open messages of an agent waits for the model.
func waitsForModel(ctx context.Context, store *operate.Store, agent, model string) bool {
	for _, state := range []turnkeeper.MessageState{turnkeeper.MessageWaiting, turnkeeper.MessageRunning} {
		messages, err := store.Messages(ctx, operate.Page{Agent: agent, State: string(state), Limit: maxLimit})
		if err != nil || slices.ContainsFunc(messages, func(m waiting.Message) bool {
			return slices.ContainsFunc(m.Waits, func(w waiting.Wait) bool { return w.Model == model })
		}) {
			return true
		}
	}
	return false
}

// withoutAnother returns the agents that need the model now, and no other model that is up.
func withoutAnother(m modelhealth.Health, all []modelhealth.Health) (stuck []string) {
	for _, agent := range m.NeededBy {
		if !slices.ContainsFunc(all, func(other modelhealth.Health) bool { return !other.Down() && slices.Contains(other.NeededBy, agent) }) {
			stuck = append(stuck, agent)
		}
	}
	return stuck
}

// adviceOfModel says how to fix a model that is down, by the class of its newest failure.
func adviceOfModel(m modelhealth.Health, c term.Clock) string {
	provider, _, _ := strings.Cut(m.Model, "/")
	switch inference.Class(m.ErrorClass) {
	case inference.ClassAuth:
		return "set the right key of the provider " + provider + " and restart the workers: they read it when they start"
	case inference.ClassQuota:
		return "add credit to the account of the provider " + provider + "; it is tried again " + c.At(m.Until)
	case inference.ClassNotFound:
		return "correct the model's name in the file of " + words.Enumerate(m.Agents) + ", and make the workers reload it (SIGHUP); or correct the base_url of the provider " +
			provider + " in the config file, and restart the workers"
	default:
		return "wait: it is tried again " + c.At(m.Until) + ", and messages continue with its first answer. To try it at once: turnctl retry MESSAGE"
	}
}
