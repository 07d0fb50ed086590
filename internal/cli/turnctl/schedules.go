package turnctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/scheduler"
	"turnkeeper/storage/operate"
)

func schedulesCommand(s *shell.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "schedules", Short: "List schedules, pause them, run one now, or change their times", Args: cobra.NoArgs,
		Long: `List schedules. A schedule is named AGENT/NAME, or AGENT for its schedule
"default". Changes made here persist over restarts and over changes of the agent's
file.`,
		Example: `  turnctl schedules pause watcher
  turnctl schedules set watcher/nightly "30 2 * * *"
  turnctl schedules reset watcher/nightly     back to the agent's file`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := func(ctx context.Context, store *operate.Store) ([]turnkeeper.Schedule, error) {
				if err := printPause(ctx, s, store); err != nil {
					return nil, err
				}
				return store.Schedules(ctx)
			}
			return list(s, cmd, look, views.OfSchedule, showSchedules, "no schedules: no agent's file has one")
		},
	}
	cmd.AddCommand(
		pauseScheduleCommand(s),
		changeSchedule(s, "resume AGENT[/NAME]", "Resume a schedule from its next slot", 1, func(ctx context.Context,
			store *operate.Store, to target, _ []string) error {
			return store.PauseSchedule(ctx, to.agent, to.name, false, "")
		}),
		changeSchedule(s, "set AGENT[/NAME] CRON", "Change the times of a schedule", 2, setSchedule),
		changeSchedule(s, "reset AGENT[/NAME]", "Go back to the schedule of the agent's file", 1,
			func(ctx context.Context, store *operate.Store, to target, _ []string) error {
				return store.OverrideSchedule(ctx, to.agent, to.name, "")
			}),
		runSchedule(s),
	)
	return cmd
}

func pauseScheduleCommand(s *shell.Session) *cobra.Command {
	var reason string
	cmd := changeSchedule(s, "pause AGENT[/NAME]", "Stop a schedule", 1, func(ctx context.Context, store *operate.Store,
		to target, _ []string) error {
		return store.PauseSchedule(ctx, to.agent, to.name, true, strings.TrimSpace(reason))
	})
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, for other operators")
	return cmd
}

func showSchedules(s *term.Screen, c term.Clock, schedules []turnkeeper.Schedule) {
	t := term.NewTable("SCHEDULE", "STATE", "CRON", "TIME ZONE", "NEXT", "LAST SLOT", "CONVERSATION", "NOTE")
	for _, sched := range schedules {
		state, next := term.Cell{Text: "active", Tone: term.Good}, c.At(sched.NextDue)
		switch {
		case !sched.Active:
			state, next = term.Cell{Text: "ended", Tone: term.Dim}, "-"
		case sched.AgentRetired:
			state, next = term.Cell{Text: "agent retired", Tone: term.Warned}, "-"
		case !sched.PausedAt.IsZero():
			state, next = term.Cell{Text: "paused", Tone: term.Warned}, "-"
		}
		note := sched.LastError
		switch {
		case note != "":
		case sched.Active && !sched.PausedAt.IsZero():
			note = strings.TrimSuffix("paused since "+c.At(sched.PausedAt)+": "+sched.PausedReason, ": ")
		case sched.Active && sched.Skipped > 0:
			note = fmt.Sprintf("%s not run, the last at %s: %s", term.Plural(sched.Skipped, "slot"),
				c.At(sched.SkippedSlot), sched.SkippedWhy)
		case sched.CronOverride != "":
			note = "changed here; the file says " + sched.Cron
		}
		t.Add(sched.Agent+"/"+sched.Name, state, sched.InForce(), sched.TimeZone, next, c.At(sched.LastSlot),
			sched.Conversation, note)
	}
	t.Print(s)
}

// A target names the schedule of a command.
type target struct{ agent, name string }

func parseTarget(text string) (target, error) {
	agent, name, named := strings.Cut(text, "/")
	if !named {
		name = "default"
	}
	if err := turnkeeper.CheckAgentName(agent); err != nil {
		return target{}, shell.Misused("%q is not a schedule: give AGENT or AGENT/NAME; %w", text, err)
	}
	if name == "" {
		return target{}, shell.Misused("%q is not a schedule: give AGENT or AGENT/NAME", text)
	}
	return target{agent, name}, nil
}

func (t target) String() string { return t.agent + "/" + t.name }

// changeSchedule returns a command that changes one schedule and prints the
// result.
func changeSchedule(s *shell.Session, use, short string, args int, change func(context.Context, *operate.Store, target,
	[]string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: shell.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := parseTarget(args[0])
			if err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				err := change(cmd.Context(), db.Store, to, args[1:])
				if errors.Is(err, turnkeeper.ErrNotFound) {
					return shell.NotFound(`there is no schedule %s: "turnctl schedules" lists them`, to)
				}
				if err != nil {
					return err
				}
				return showSchedule(cmd.Context(), s, db.Store, to)
			})
		},
	}
}

func showSchedule(ctx context.Context, s *shell.Session, store *operate.Store, which target) error {
	sched, err := findSchedule(ctx, store, which)
	if err != nil {
		return err
	}
	view := scheduleView{views.OfSchedule(sched), agentdef.CronWarning(sched.InForce()), []time.Time{}}
	if sched.Active && sched.PausedAt.IsZero() {
		view.Next = nextTimes(s, sched.InForce(), sched.TimeZone)
	}
	return s.Print(view, func() {
		showSchedules(s.Out, s.Clock(), []turnkeeper.Schedule{sched})
		if len(view.Next) > 0 {
			s.Out.Line("%s", nextLine(s.Clock(), sched.TimeZone, view.Next))
		}
		if view.Warning != "" {
			s.Err.Line("%s", s.Err.Paint(term.Warned, view.Warning))
		}
	})
}

// A scheduleView is the JSON output for a schedule that was changed.
type scheduleView struct {
	views.Schedule
	Warning string      `json:"warning"` // of its times; empty: none
	Next    []time.Time `json:"next"`    // the next three times; none: paused or ended
}

// nextTimes returns the next three times of a valid schedule.
func nextTimes(s *shell.Session, cron, zone string) []time.Time {
	slots, err := scheduler.NextSlots(cron, zone, s.Clock().Now, 3)
	if err != nil { // written by SQL; the list shows the error
		return []time.Time{}
	}
	return slots
}

// nextLine shows times with their weekdays, in the time zone of their schedule.
func nextLine(c term.Clock, zone string, times []time.Time) string {
	place, err := time.LoadLocation(zone)
	if err != nil {
		place = c.Zone
	}
	var shown []string
	for _, at := range times {
		shown = append(shown, at.In(place).Format("Mon 2006-01-02 15:04:05"))
	}
	return "next times (" + zone + "): " + strings.Join(shown, ", ")
}

func findSchedule(ctx context.Context, store *operate.Store, which target) (turnkeeper.Schedule, error) {
	all, err := store.Schedules(ctx)
	if err != nil {
		return turnkeeper.Schedule{}, err
	}
	for _, sched := range all {
		if sched.Agent == which.agent && sched.Name == which.name {
			return sched, nil
		}
	}
	return turnkeeper.Schedule{}, turnkeeper.ErrNotFound
}

// runSchedule returns the command that enqueues the message of a schedule.
func runSchedule(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "run AGENT[/NAME]", Short: "Run a schedule now, in addition to its slots", Args: shell.ExactArgs(1),
		Long: `Enqueue the message of a schedule now. This does not change its next slot, and works
for a paused schedule too. If a message of the schedule is already waiting, the
command enqueues no other. A schedule that has ended, because its agent's file no
longer has it, cannot be run.

` + shell.RefusedHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := parseTarget(args[0])
			if err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				id, waiting, err := db.Store.RunSchedule(cmd.Context(), which.agent, which.name)
				switch {
				case errors.Is(err, turnkeeper.ErrNotFound):
					return shell.NotFound(`there is no schedule %s: "turnctl schedules" lists them`, which)
				case errors.Is(err, turnkeeper.ErrWrongState), errors.Is(err, turnkeeper.ErrAgentRetired):
					return shell.Refused(err)
				case err != nil:
					return err
				}
				return s.Print(views.ScheduleRun{MessageID: id, Waiting: waiting}, func() {
					if waiting {
						s.Out.Line("message %d of the schedule is already waiting", id)
					} else {
						s.Out.Line("message %d", id)
					}
				})
			})
		},
	}
}

// setSchedule changes the times of a schedule.
func setSchedule(ctx context.Context, store *operate.Store, to target, args []string) error {
	if _, err := findSchedule(ctx, store, to); err != nil {
		return err
	}
	cron, err := agentdef.ParseCron(args[0])
	if err != nil {
		return shell.Misused("CRON is %q: %v", args[0], err)
	}
	return store.OverrideSchedule(ctx, to.agent, to.name, cron)
}
