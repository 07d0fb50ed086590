package turnctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func levelsCommand(s *shell.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "levels", Short: "List survival levels: what is left of agents' budgets of the day", Args: cobra.NoArgs,
		Long: `List the survival levels of agents: normal, low (less than 20 % of the budget of the
day is left) or critical (less than 5 %). A level ends when 5 points more are left, and
with the day. The agent's file says what happens at a level: another model, no
schedules, only messages of a priority or more (levels in its front matter).

A pin sets a level in place of the budget, for one agent or for all that have no pin of
their own.`,
		Example: `  turnctl levels
  turnctl levels pin critical --for 2h --reason "the provider is expensive today"
  turnctl levels pin normal --agent clerk
  turnctl levels unpin --agent clerk`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				return printLevels(cmd.Context(), s, db.Store)
			})
		},
	}
	cmd.AddCommand(pinLevelCommand(s), unpinLevelCommand(s))
	return cmd
}

func pinLevelCommand(s *shell.Session) *cobra.Command {
	var pin operate.Pin
	names := survival.Names()
	cmd := &cobra.Command{
		Use: "pin LEVEL", Short: "Set the level of an agent, or of all, in place of the budget",
		Args:      shell.ExactArgs(1),
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := shell.OneOf("LEVEL", args[0], names); err != nil {
				return err
			}
			if pin.For < 0 || pin.For > survival.MaxPin {
				return shell.Misused("--for is %s: it must be 0 to %.0fh", pin.For, survival.MaxPin.Hours())
			}
			user, _ := s.Getenv("USER")
			pin.Level, pin.By = survival.Level(args[0]), cmp.Or(strings.TrimSpace(pin.By), user, "operator")
			return changeLevel(cmd, s, pin.Agent, func(ctx context.Context, store *operate.Store) error {
				return store.PinLevel(ctx, pin)
			})
		},
	}
	cmd.Flags().StringVar(&pin.Agent, "agent", "", "of this agent; without it, of all that have no pin of their own")
	shell.DurationFlag(cmd.Flags(), &pin.For, "for", 0, "how long the pin holds; 0: until it is unpinned")
	cmd.Flags().StringVar(&pin.Reason, "reason", "", "the reason, for other operators")
	cmd.Flags().StringVar(&pin.By, "by", "", "who pins it (default $USER)")
	return cmd
}

func unpinLevelCommand(s *shell.Session) *cobra.Command {
	var agent string
	cmd := &cobra.Command{
		Use: "unpin", Short: "Let the budget decide the level again", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return changeLevel(cmd, s, agent, func(ctx context.Context, store *operate.Store) error {
				return store.UnpinLevel(ctx, agent)
			})
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "end the pin of this agent; without it, that of all")
	return cmd
}

// changeLevel changes the pin of an agent, or of all, and prints the levels.
func changeLevel(cmd *cobra.Command, s *shell.Session, agent string, change func(context.Context,
	*operate.Store) error) error {
	return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
		if err := registered(cmd.Context(), db.Store, agent); err != nil {
			return err
		}
		if err := change(cmd.Context(), db.Store); err != nil {
			return err
		}
		return printLevels(cmd.Context(), s, db.Store)
	})
}

func printLevels(ctx context.Context, s *shell.Session, store *operate.Store) error {
	all, err := store.Levels(ctx)
	if err != nil {
		return err
	}
	return s.Print(views.OfLevels(all), func() {
		if all.All != nil {
			s.Out.Line("all agents without a pin of their own: %s", diagnosis.PinText(s.Clock(), all.All))
		}
		if len(all.Agents) == 0 {
			s.Err.Line("no agent has a budget of a day, or levels in its file")
			return
		}
		showLevels(s.Out, s.Clock(), all.Agents)
	})
}

func showLevels(s *term.Screen, c term.Clock, agents []operate.AgentLevel) {
	t := term.NewTable("AGENT", "LEVEL", ">LEFT", ">TOKENS", ">CALLS", "HERE", ">WAITING", "PIN")
	for _, a := range agents {
		left := "-"
		if percent, ok := a.Used.Left(); ok {
			left = fmt.Sprintf("%d %%", percent)
		}
		pin := "-"
		if a.Pin != nil {
			pin = diagnosis.PinText(c, a.Pin)
		}
		t.Add(a.Agent, levelCell(a.Level), left, usedOf(a.Used.Tokens, a.Used.TokenLimit),
			usedOf(a.Used.Calls, a.Used.CallLimit), term.OrDash(diagnosis.EffectText(a)), fmt.Sprint(a.Held), pin)
	}
	t.Print(s)
}

func levelCell(level survival.Level) term.Cell {
	return term.Cell{Text: string(level), Tone: map[survival.Level]term.Tone{survival.Normal: term.Good,
		survival.Low: term.Warned, survival.Critical: term.Bad}[level]}
}

// usedOf writes what is used of a limit; without one, what is used.
func usedOf(used, limit int64) string {
	if limit == 0 {
		return term.Thousands(used)
	}
	return term.Thousands(used) + " of " + term.Thousands(limit)
}
