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

// A retiredView is the JSON output of retire and restore.
type retiredView struct {
	views.Agent
	Cancelled int `json:"cancelled"` // waiting messages that were cancelled
}

func retireCommand(s *shell.Session) *cobra.Command {
	var cancelWaiting bool
	cmd := &cobra.Command{
		Use: "retire NAME", Short: "Make an agent refuse new messages", Args: shell.ExactArgs(1),
		Long: `Make an agent refuse new messages, with an error for the sender, and stop its
schedules. This persists over restarts, also of workers that have the agent's
file, until "turnctl agents restore NAME".

Running turns continue. Waiting messages stay in the inbox; --cancel-waiting
cancels them, each with a reply, like "turnctl cancel --message". The agent still
works as a sub-agent of other agents: remove it from their sub_agents to end that.
Repeating the command does nothing.`,
		Example: `  turnctl agents retire clerk
  turnctl agents retire clerk --cancel-waiting`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgent(cmd.Context(), s, args[0], func(ctx context.Context, store *operate.Store) error {
				if err := store.RetireAgent(ctx, args[0]); err != nil || !cancelWaiting {
					return printRetired(ctx, s, store, args[0], 0, err)
				}
				n, err := store.CancelWaiting(ctx, args[0], "the agent was retired")
				return printRetired(ctx, s, store, args[0], n, err)
			})
		},
	}
	cmd.Flags().BoolVar(&cancelWaiting, "cancel-waiting", false, "cancel its waiting messages")
	return cmd
}

func restoreCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "restore NAME", Short: "Make a retired agent accept messages again", Args: shell.ExactArgs(1),
		Long: `Make a retired agent accept messages again. It handles waiting messages, and its
schedules continue with their next slots. Repeating the command does nothing.`,
		Example: `  turnctl agents restore clerk`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withAgent(cmd.Context(), s, args[0], func(ctx context.Context, store *operate.Store) error {
				return printRetired(ctx, s, store, args[0], 0, store.RestoreAgent(ctx, args[0]))
			})
		},
	}
}

func withAgent(ctx context.Context, s *shell.Session, name string, f func(context.Context,
	*operate.Store) error) error {
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

// printRetired prints the agent's state after a change, or returns the change's error.
func printRetired(ctx context.Context, s *shell.Session, store *operate.Store, name string, cancelled int,
	err error) error {
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
			s.Out.Line("%s accepts messages", name)
			return
		}
		s.Out.Line("%s is retired: it refuses new messages, and its schedules do not run", name)
		if cancelled > 0 {
			s.Out.Line("%s cancelled", term.Plural(cancelled, "message"))
		}
		if a.LeftWaiting > 0 {
			s.Out.Line("%s",
				fmt.Sprintf(
					`%s still waiting: "turnctl inbox --agent %s --state waiting" lists them, "turnctl agents restore %s" makes the agent handle them, --cancel-waiting cancels them`,
					term.Plural(a.LeftWaiting, "message"), name, name))
		}
	})
}
