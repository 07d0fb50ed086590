package turnctl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// A retiredView is an agent with what was cancelled of it.
type retiredView struct {
	views.Agent
	Cancelled int `json:"cancelled"` // messages that waited
}

func retireCommand(s *shell.Session) *cobra.Command {
	var cancelWaiting bool
	cmd := &cobra.Command{
		Use: "retire NAME", Short: "Have an agent take no new messages", Args: shell.ExactArgs(1),
		Long: `Have an agent take no new messages: who sends one is told. Its schedules do not
run. It lasts over restarts, also of workers that have the agent's file, until
"turnctl agents restore NAME".

Turns that have begun go on. Messages that wait stay and wait; with
--cancel-waiting they are cancelled, each with a reply, as by "turnctl cancel
--message". What turns of other agents give it as their sub-agent it still does:
take it out of their sub_agents to end that. A repeat does nothing more.`,
		Example: `  turnctl agents retire clerk
  turnctl agents retire clerk --cancel-waiting`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgent(cmd.Context(), s, args[0], func(ctx context.Context, store *operate.Store) error {
				if err := store.RetireAgent(ctx, args[0]); err != nil || !cancelWaiting {
					return tellRetired(ctx, s, store, args[0], 0, err)
				}
				n, err := store.CancelWaiting(ctx, args[0], "the agent was retired")
				return tellRetired(ctx, s, store, args[0], n, err)
			})
		},
	}
	cmd.Flags().BoolVar(&cancelWaiting, "cancel-waiting", false, "cancel its messages that wait")
	return cmd
}

func restoreCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "restore NAME", Short: "Have a retired agent take messages again", Args: shell.ExactArgs(1),
		Long: `Have a retired agent take messages again. Messages that wait are handled, and its
schedules go on from their next slots. A repeat does nothing more.`,
		Example: `  turnctl agents restore clerk`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgent(cmd.Context(), s, args[0], func(ctx context.Context, store *operate.Store) error {
				return tellRetired(ctx, s, store, args[0], 0, store.RestoreAgent(ctx, args[0]))
			})
		},
	}
}

func withAgent(ctx context.Context, s *shell.Session, name string, f func(context.Context, *operate.Store) error) error {
	if err := turnkeeper.CheckAgentName(name); err != nil {
		return shell.Misused("%w", err)
	}
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		err := f(ctx, db.Store)
		if errors.Is(err, turnkeeper.ErrNotFound) {
			return shell.NotFound(`there is no agent %q: "turnctl agents" lists them`, name)
		}
		return err
	})
}

// tellRetired says how the agent stands after a change that ended with err.
func tellRetired(ctx context.Context, s *shell.Session, store *operate.Store, name string, cancelled int, err error) error {
	if err != nil {
		return err
	}
	all, err := store.Agents(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(a turnkeeper.AgentRegistration) bool { return a.Name == name })
	if i < 0 {
		return turnkeeper.ErrNotFound
	}
	a := all[i]
	return s.Print(retiredView{views.OfAgent(a), cancelled}, func() {
		if a.RetiredAt.IsZero() {
			s.Out.Line("%s takes messages", name)
			return
		}
		s.Out.Line("%s is retired: it takes no new messages, and its schedules do not run", name)
		if cancelled > 0 {
			s.Out.Line("%s cancelled", term.Plural(cancelled, "message"))
		}
		if a.LeftWaiting > 0 {
			s.Out.Line("%s", fmt.Sprintf(`%s still waiting: "turnctl inbox --agent %s --state waiting" lists them, "turnctl agents restore %s" lets them be handled, --cancel-waiting cancels them`,
				term.Plural(a.LeftWaiting, "message"), name, name))
		}
	})
}
