package turnctl

import (
	"context"
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
	status := func(cmd *cobra.Command, _ []string) error { return steerScheduler(cmd.Context(), s, nil) }
	cmd := &cobra.Command{
		Use: "scheduler", Short: "See, pause or tune the scheduler", Args: cobra.NoArgs,
		Long: `See, pause or tune the scheduler of this database. A paused scheduler hands out
no turns; what runs goes on, and messages are accepted. All of it lasts over
restarts.`,
		Example: `  turnctl scheduler pause "the provider is down"
  turnctl scheduler resume
  turnctl scheduler set --poll-interval 2s --max-dispatches 50`,
		RunE: status,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "status", Short: "How the scheduler stands", Args: cobra.NoArgs, RunE: status},
		&cobra.Command{
			Use: "pause REASON", Short: "Hand out no more turns", Args: shell.SomeArgs,
			RunE: func(cmd *cobra.Command, args []string) error {
				reason := strings.TrimSpace(strings.Join(args, " "))
				if reason == "" {
					return shell.Misused("say why the scheduler is paused: others will ask")
				}
				return steerScheduler(cmd.Context(), s, func(store *operate.Store) error {
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
		Use: "resume", Short: "Hand out turns again", Args: cobra.NoArgs,
		Long: `Hand out turns again.

After a promotion of a standby, a restore, or a step of the database's clock the
scheduler holds off by itself for one lease (lease_ttl, 4 minutes): until then a
turn that the database does not know of may still run. --now ends that. Use it
only if the database has lost no commit (a planned switchover, a standby that
was synchronous), or if all workers were restarted since.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return steerScheduler(cmd.Context(), s, func(store *operate.Store) error {
				if now {
					if err := store.EndHold(cmd.Context()); err != nil {
						return err
					}
				}
				return store.ResumeScheduler(cmd.Context())
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "do not wait for a hold-off to end; read above when that is safe")
	return cmd
}

func setSchedulerCommand(s *shell.Session) *cobra.Command {
	var poll time.Duration
	var dispatches int
	cmd := &cobra.Command{
		Use: "set", Short: "Change the scheduler's pace while it runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pollGiven, dispatchesGiven := cmd.Flags().Changed("poll-interval"), cmd.Flags().Changed("max-dispatches")
			switch {
			case !pollGiven && !dispatchesGiven:
				return shell.Misused("give --poll-interval, --max-dispatches, or both")
			case pollGiven && (poll < 10*time.Millisecond || poll > time.Hour):
				return shell.Misused("--poll-interval is %s: it must be 10ms to 1h", poll)
			case dispatchesGiven && (dispatches < 1 || dispatches > 10_000):
				return shell.Misused("--max-dispatches is %d: it must be 1 to 10000", dispatches)
			}
			return steerScheduler(cmd.Context(), s, func(store *operate.Store) error {
				return store.SetScheduler(cmd.Context(), poll, dispatches)
			})
		},
	}
	shell.DurationFlag(cmd.Flags(), &poll, "poll-interval", 0, "how often to look for work that no notification told of, 10ms to 1h")
	cmd.Flags().IntVar(&dispatches, "max-dispatches", 0, "turns that one tick hands out, 1 to 10000")
	return cmd
}

// steerScheduler changes the scheduler, if there is a change, and shows how it
// stands.
func steerScheduler(ctx context.Context, s *shell.Session, change func(*operate.Store) error) error {
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

// tellPaused tells people above a list that the scheduler hands out no turns.
func tellPaused(ctx context.Context, s *shell.Session, store *operate.Store) error {
	if s.JSON() {
		return nil
	}
	settings, err := store.SchedulerSettings(ctx)
	if err == nil {
		showPause(s.Out, s.Clock(), settings)
	}
	return err
}

// showPause is a line on a scheduler that hands out no turns.
func showPause(s *term.Screen, c term.Clock, set operate.SchedulerSettings) {
	switch {
	case !set.PausedAt.IsZero():
		s.Line("%s", s.Paint(term.Warned, "The scheduler has been paused since "+c.At(set.PausedAt)+": "+term.OneLine(set.PausedReason, 200)))
	case set.HoldUntil.After(c.Now):
		s.Line("%s", s.Paint(term.Warned, "The scheduler holds off until "+c.At(set.HoldUntil)+": "+term.OneLine(set.HoldReason, 200)))
	}
}

func showScheduler(s *term.Screen, c term.Clock, set operate.SchedulerSettings) {
	state := s.Paint(term.Good, "hands out turns")
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
