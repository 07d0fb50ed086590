package turnctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func schedulerCommand(s *shell.Session) *cobra.Command {
	status := func(cmd *cobra.Command, _ []string) error { return changeScheduler(cmd.Context(), s, nil) }
	cmd := &cobra.Command{
		Use: "scheduler", Short: "Show, pause or tune the scheduler", Args: cobra.NoArgs,
		Long: `Show, pause or tune the scheduler of this database. A paused scheduler grants no
turns; running turns continue, and messages are accepted. pause returns when the tick
in progress has ended: nothing is granted after that. Changes persist over restarts.`,
		Example: `  turnctl scheduler pause "the provider is down"
  turnctl scheduler resume
  turnctl scheduler set --poll-interval 2s --max-dispatches 50`,
		RunE: status,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "status", Short: "Show the state of the scheduler", Args: cobra.NoArgs, RunE: status},
		&cobra.Command{
			Use: "pause REASON", Short: "Stop granting turns", Args: shell.SomeArgs,
			RunE: func(cmd *cobra.Command, args []string) error {
				reason := strings.TrimSpace(strings.Join(args, " "))
				if reason == "" {
					return shell.Misused("give a reason for the pause, for other operators")
				}
				return changeScheduler(cmd.Context(), s, func(store *operate.Store) error {
					return store.PauseScheduler(cmd.Context(), strings.ToValidUTF8(reason, "\uFFFD"))
				})
			},
		},
		resumeSchedulerCommand(s),
		setSchedulerCommand(s),
	)
	return cmd
}

func resumeSchedulerCommand(s *shell.Session) *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use: "resume", Short: "Grant turns again", Args: cobra.NoArgs,
		Long: `Grant turns again.

After the promotion of a standby, a restore, or a step of the database's clock, the
scheduler holds off by itself for one lease_ttl (4 minutes): until then a turn that
the database does not know may still run. --now ends that. Use it only if the
database has lost no commit (a planned switchover, a synchronous standby), or if
all workers have been restarted since.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return changeScheduler(cmd.Context(), s, func(store *operate.Store) error {
				if now {
					if err := store.EndHold(cmd.Context()); err != nil {
						return err
					}
				}
				return store.ResumeScheduler(cmd.Context())
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "end a hold-off; see above when that is safe")
	return cmd
}

func setSchedulerCommand(s *shell.Session) *cobra.Command {
	pollInterval, maxDispatches := config.Named("poll_interval"), config.Named("max_dispatches_per_tick")
	var poll time.Duration
	var dispatches int
	cmd := &cobra.Command{
		Use: "set", Short: "Change the scheduler's pace while it runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pollGiven, dispatchesGiven := cmd.Flags().Changed("poll-interval"), cmd.Flags().Changed("max-dispatches")
			if !pollGiven && !dispatchesGiven {
				return shell.Misused("give --poll-interval, --max-dispatches, or both")
			}
			if pollGiven {
				if err := pollInterval.Check(poll.String()); err != nil {
					return shell.Misused("--poll-interval is %s: %w", poll, err)
				}
			}
			if dispatchesGiven {
				if err := maxDispatches.Check(fmt.Sprint(dispatches)); err != nil {
					return shell.Misused("--max-dispatches is %d: %w", dispatches, err)
				}
			}
			return changeScheduler(cmd.Context(), s, func(store *operate.Store) error {
				return store.SetScheduler(cmd.Context(), poll, dispatches)
			})
		},
	}
	shell.DurationFlag(cmd.Flags(), &poll, "poll-interval", 0,
		"how often to look for work without a notification, "+pollInterval.Bounds)
	cmd.Flags().IntVar(&dispatches, "max-dispatches", 0,
		"the maximum number of turns that one tick grants, "+maxDispatches.Bounds)
	return cmd
}

// changeScheduler applies a change, unless it is nil, and prints the
// scheduler's state.
func changeScheduler(ctx context.Context, s *shell.Session, change func(*operate.Store) error) error {
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		if change != nil {
			if err := change(db.Store); err != nil {
				return err
			}
		}
		settings, err := db.Store.SchedulerSettings(ctx)
		if err != nil {
			return err
		}
		return s.Print(views.OfScheduler(settings), func() { showScheduler(s.Out, s.Clock(), settings) })
	})
}

// printPause warns, above a text list, that the scheduler grants no turns.
func printPause(ctx context.Context, s *shell.Session, store *operate.Store) error {
	if s.JSON() {
		return nil
	}
	settings, err := store.SchedulerSettings(ctx)
	if err == nil {
		showPause(s.Out, s.Clock(), settings)
	}
	return err
}

// showPause prints a line if the scheduler is paused or holds off.
func showPause(s *term.Screen, c term.Clock, set operate.SchedulerSettings) {
	switch {
	case !set.PausedAt.IsZero():
		s.Line("%s", s.Paint(term.Warned, "The scheduler has been paused since "+c.At(set.PausedAt)+": "+term.OneLine(
			set.PausedReason, 200)))
	case set.HoldUntil.After(c.Now):
		s.Line("%s", s.Paint(term.Warned, "The scheduler holds off until "+c.At(set.HoldUntil)+": "+term.OneLine(
			set.HoldReason, 200)))
	}
}

func showScheduler(s *term.Screen, c term.Clock, set operate.SchedulerSettings) {
	state := s.Paint(term.Good, "running")
	if !set.HoldUntil.IsZero() && set.HoldUntil.After(c.Now) {
		state = s.Paint(term.Warned, "holds off until "+c.At(set.HoldUntil)) + ": " + term.OneLine(set.HoldReason, 0)
	}
	if !set.PausedAt.IsZero() {
		state = s.Paint(term.Warned, "paused since "+c.At(set.PausedAt)) + ": " + term.OneLine(set.PausedReason, 0)
	}
	poll, dispatches := "as configured", "as configured"
	if set.PollInterval > 0 {
		poll = set.PollInterval.String()
	}
	if set.MaxDispatches > 0 {
		dispatches = term.Thousands(int64(set.MaxDispatches))
	}
	p := pairs{Screen: s, width: 16}
	p.add("scheduler", state)
	p.add("last tick", c.At(set.LastTickAt))
	p.add("poll interval", poll)
	p.add("turns a tick", dispatches)
}
