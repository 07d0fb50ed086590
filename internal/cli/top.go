package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// topWindow is what rates are taken over.
const topWindow = time.Minute

func (s *session) topCommand() *cobra.Command {
	var once bool
	var interval time.Duration
	var limit int
	cmd := &cobra.Command{
		Use: "top", Short: "Watch the service: queue, running turns, lanes, workers", Args: cobra.NoArgs,
		Long: `Watch the service in the terminal: how much waits and for how long, what ended in
the last minute, models that are down, the workers, the open turns and the lanes.
It is drawn anew every --interval. Keys: q or Ctrl-C ends it, the space bar looks at once, arrows,
page keys, Home and End (or k, j, g and G) scroll. Where the output is no
terminal, or with --once, it is printed once; -o json prints an object for each
look.

` + exitHelp,
		Example: `  turnctl top
  turnctl top --once | head
  turnctl top --interval 10s -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond || interval > time.Hour {
				return usageError("--interval is %s: it must be 100ms to 1h", interval)
			}
			if limit < 1 || limit > maxLimit {
				return usageError("--limit is %d: it must be 1 to %d", limit, maxLimit)
			}
			once = once || !s.out.terminal && !s.json()
			return s.withDatabase(cmd.Context(), func(_ *config.Config, db *app.Database) error {
				return s.top(cmd.Context(), db.Store, once, interval, limit)
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "look once and end")
	durationFlag(cmd.Flags(), &interval, "interval", 2*time.Second, "how often it looks again")
	cmd.Flags().IntVar(&limit, "limit", 15, "open turns, and lanes, 1 to 100")
	return cmd
}

// A sight is what top shows at one moment.
type sight struct {
	operate.Figures
	Down      []turnkeeper.ModelHealth // of the models that agents ask
	Scheduler operate.SchedulerSettings
	Workers   []turnkeeper.Heartbeat
	Turns     []turnkeeper.Turn
	Lanes     []operate.LaneView
}

type sightView struct {
	Now             time.Time       `json:"now"`
	Waiting         int             `json:"waiting_messages"`
	OldestMs        int64           `json:"oldest_due_ms"` // 0: nothing is due
	Running         int             `json:"running_turns"`
	Queued          int             `json:"queued_turns"`
	Elsewhere       int             `json:"waiting_turns"`
	EndedPerMin     int             `json:"ended_last_minute"`
	SucceededPerMin int             `json:"succeeded_last_minute"`
	FailedPerMin    int             `json:"failed_last_minute"`
	TokensPerMin    int64           `json:"tokens_last_minute"`
	Down            []views.Model   `json:"models_down"`
	Scheduler       views.Scheduler `json:"scheduler"`
	Workers         []views.Worker  `json:"workers"`
	Turns           []views.Turn    `json:"turns"`
	Lanes           []views.Lane    `json:"lanes"`
}

func viewSight(v sight) sightView {
	return sightView{
		v.Now, v.Waiting, views.Millis(v.Oldest), v.Running, v.Queued, v.Elsewhere, v.Ended, v.Succeeded, v.Failed, v.Tokens,
		views.All(v.Down, views.OfModel), views.OfScheduler(v.Scheduler), views.All(v.Workers, views.OfWorker), views.All(v.Turns, views.OfTurn),
		views.All(v.Lanes, views.OfLane),
	}
}

func look(ctx context.Context, store *operate.Store, limit int) (v sight, err error) {
	if v.Figures, err = store.Figures(ctx, topWindow); err != nil {
		return v, err
	}
	models, err := store.Models(ctx)
	if err != nil {
		return v, err
	}
	v.Down = slices.DeleteFunc(models, func(m turnkeeper.ModelHealth) bool { return !m.Down() || !m.Used() })
	if v.Scheduler, err = store.SchedulerSettings(ctx); err != nil {
		return v, err
	}
	if v.Workers, err = store.Workers(ctx); err != nil {
		return v, err
	}
	if v.Turns, err = store.OpenTurns(ctx, limit); err != nil {
		return v, err
	}
	v.Lanes, err = store.Lanes(ctx, operate.Page{Limit: limit})
	return v, err
}

// top looks again and again until ctx ends, which is its good end.
func (s *session) top(ctx context.Context, store *operate.Store, once bool, interval time.Duration, limit int) error {
	if !once && !s.json() {
		return s.liveTop(ctx, store, interval, limit)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		v, err := look(ctx, store, limit)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		switch {
		case s.json() && once:
			err = writeJSON(s.Stdout, viewSight(v))
		case s.json():
			err = writeJSONLine(s.Stdout, viewSight(v))
		default:
			drawSight(s.out, clock{now: v.Now, zone: s.Zone}, v)
		}
		if err != nil || once {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// liveTop draws on the terminal until ctx ends or q is typed. A database that is away is
// told of, and looked at again.
func (s *session) liveTop(ctx context.Context, store *operate.Store, interval time.Duration, limit int) error {
	t, leave := s.enterLive(ctx)
	defer leave()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	v, err := look(ctx, store, limit)
	answered := s.Now()
	for {
		if err == nil {
			answered = s.Now()
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := t.draw(s.pageOf(v), s.statusOf(err, s.Now().Sub(answered))); err != nil {
			return err
		}
		switch t.next(ctx, tick.C) {
		case liveQuit:
			return nil
		case liveLook:
			v, err = lookAgain(ctx, store, limit, v)
		case liveDraw:
		}
	}
}

// lookTime bounds a look: the terminal does not stand still longer.
const lookTime = 5 * time.Second

// lookAgain is what it is now, or what it was with the error.
func lookAgain(ctx context.Context, store *operate.Store, limit int, before sight) (sight, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	v, err := look(ctx, store, limit)
	if err != nil {
		return before, err
	}
	return v, nil
}

// pageOf draws a sight for the terminal as it is now.
func (s *session) pageOf(v sight) func(*screen) {
	return func(paper *screen) {
		if !v.Now.IsZero() {
			drawSight(paper, clock{now: v.Now, zone: s.Zone}, v)
		}
	}
}

func (s *session) statusOf(err error, silent time.Duration) cell {
	if err == nil {
		return cell{}
	}
	return cell{"no answer from the database for " + coarse(silent) + ": " + oneLine(s.masker.String(err.Error()), 0), bad}
}

func drawSight(s *screen, c clock, v sight) {
	alive, slots := 0, 0
	for _, w := range v.Workers {
		if w.State() == turnkeeper.WorkerAlive {
			alive++
			slots += w.Slots
		}
	}
	s.line("%s  %s", s.in(bold, "turnkeeper"), s.in(dim, c.moment(v.Now)))
	showPause(s, c, v.Scheduler)
	oldest := "none due"
	if v.Waiting > 0 && v.Oldest > 0 {
		oldest = "the oldest due " + coarse(v.Oldest) + " ago"
	}
	s.line("queue    %s, %s", plural(v.Waiting, "message"), oldest)
	s.line("turns    %d running of %s on %s, %d queued, %d waiting for calls", v.Running, plural(slots, "slot"), plural(alive, "worker"), v.Queued, v.Elsewhere)
	s.line("minute   %s, %d succeeded, %d failed, %s tokens", plural(v.Ended, "turn")+" ended", v.Succeeded, v.Failed, thousands(v.Tokens))
	for i, m := range v.Down {
		label := "         "
		if i == 0 {
			label = "models   "
		}
		s.line("%s%s", label, s.in(bad, fmt.Sprintf("%s is down since %s, next try %s: %s", m.Model, c.at(m.DownSince), c.at(m.Until), oneLine(m.ErrorClass+": "+m.Error, previewColumns))))
	}
	if len(v.Turns) > 0 {
		s.line("")
		showOpenTurns(s, c, v.Turns)
	}
	if len(v.Lanes) > 0 {
		s.line("")
		showLanes(s, c, v.Lanes)
	}
	if len(v.Workers) > 0 {
		s.line("")
		showWorkers(s, c, v.Workers)
	}
}

func showOpenTurns(s *screen, c clock, turns []turnkeeper.Turn) {
	t := newTable(">TURN", "STATE", "AGENT", "CONVERSATION", ">MESSAGE", ">ROUNDS", ">CALLS", ">TOKENS", "SINCE", "WORKER", "NOW")
	for _, turn := range turns {
		since := turn.GrantedAt
		if since.IsZero() {
			since = turn.CreatedAt
		}
		t.add(fmt.Sprint(turn.ID), turnCell(turn), turn.Agent, turn.Conversation, fmt.Sprint(turn.MessageID), fmt.Sprint(turn.InferenceRounds),
			fmt.Sprint(turn.ExecutedCalls), thousands(turn.Usage.Total()), c.ago(since), orDash(string(turn.WorkerID)), orDash(words.Doing(turn, c.ago)))
	}
	t.print(s)
}
