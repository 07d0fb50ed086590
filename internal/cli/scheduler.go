package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func (s *session) schedulerCommand() *cobra.Command {
	status := func(cmd *cobra.Command, _ []string) error { return s.steerScheduler(cmd.Context(), nil) }
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
			Use: "pause REASON", Short: "Hand out no more turns", Args: someArgs,
			RunE: func(cmd *cobra.Command, args []string) error {
				reason := strings.TrimSpace(strings.Join(args, " "))
				if reason == "" {
					return usageError("say why the scheduler is paused: others will ask")
				}
				return s.steerScheduler(cmd.Context(), func(store *operate.Store) error {
					return store.PauseScheduler(cmd.Context(), strings.ToValidUTF8(reason, "\uFFFD"))
				})
			},
		},
		s.resumeSchedulerCommand(),
		s.setSchedulerCommand(),
	)
	return cmd
}

func (s *session) resumeSchedulerCommand() *cobra.Command {
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
			return s.steerScheduler(cmd.Context(), func(store *operate.Store) error {
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

func (s *session) setSchedulerCommand() *cobra.Command {
	var poll time.Duration
	var dispatches int
	cmd := &cobra.Command{
		Use: "set", Short: "Change the scheduler's pace while it runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pollGiven, dispatchesGiven := cmd.Flags().Changed("poll-interval"), cmd.Flags().Changed("max-dispatches")
			switch {
			case !pollGiven && !dispatchesGiven:
				return usageError("give --poll-interval, --max-dispatches, or both")
			case pollGiven && (poll < 10*time.Millisecond || poll > time.Hour):
				return usageError("--poll-interval is %s: it must be 10ms to 1h", poll)
			case dispatchesGiven && (dispatches < 1 || dispatches > 10_000):
				return usageError("--max-dispatches is %d: it must be 1 to 10000", dispatches)
			}
			return s.steerScheduler(cmd.Context(), func(store *operate.Store) error {
				return store.SetScheduler(cmd.Context(), poll, dispatches)
			})
		},
	}
	durationFlag(cmd.Flags(), &poll, "poll-interval", 0, "how often to look for work that no notification told of, 10ms to 1h")
	cmd.Flags().IntVar(&dispatches, "max-dispatches", 0, "turns that one tick hands out, 1 to 10000")
	return cmd
}

// steerScheduler changes the scheduler, if there is a change, and shows how it
// stands.
func (s *session) steerScheduler(ctx context.Context, change func(*operate.Store) error) error {
	return s.withDatabase(ctx, func(_ *config.Config, db *app.Database) error {
		if change != nil {
			if err := change(db.Store); err != nil {
				return err
			}
		}
		settings, err := db.Store.SchedulerSettings(ctx)
		if err != nil {
			return err
		}
		return s.print(views.OfScheduler(settings), func() { showScheduler(s.out, s.clock(), settings) })
	})
}

// tellPaused tells people above a list that the scheduler hands out no turns.
func (s *session) tellPaused(ctx context.Context, store *operate.Store) error {
	if s.json() {
		return nil
	}
	settings, err := store.SchedulerSettings(ctx)
	if err == nil {
		showPause(s.out, s.clock(), settings)
	}
	return err
}

// showPause is a line on a scheduler that hands out no turns.
func showPause(s *screen, c clock, set operate.SchedulerSettings) {
	switch {
	case !set.PausedAt.IsZero():
		s.line("%s", s.in(warned, "The scheduler has been paused since "+c.at(set.PausedAt)+": "+oneLine(set.PausedReason, 200)))
	case set.HoldUntil.After(c.now):
		s.line("%s", s.in(warned, "The scheduler holds off until "+c.at(set.HoldUntil)+": "+oneLine(set.HoldReason, 200)))
	}
}

func showScheduler(s *screen, c clock, set operate.SchedulerSettings) {
	state := s.in(good, "hands out turns")
	if !set.HoldUntil.IsZero() && set.HoldUntil.After(c.now) {
		state = s.in(warned, "holds off until "+c.at(set.HoldUntil)) + ": " + oneLine(set.HoldReason, 0)
	}
	if !set.PausedAt.IsZero() {
		state = s.in(warned, "paused since "+c.at(set.PausedAt)) + ": " + oneLine(set.PausedReason, 0)
	}
	poll, dispatches := "as configured", "as configured"
	if set.PollInterval > 0 {
		poll = set.PollInterval.String()
	}
	if set.MaxDispatches > 0 {
		dispatches = thousands(int64(set.MaxDispatches))
	}
	p := pairs{screen: s, width: 16}
	p.add("scheduler", state)
	p.add("last tick", c.at(set.LastTickAt))
	p.add("poll interval", poll)
	p.add("turns a tick", dispatches)
}
