package turnctl

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// topWindow is the period of the counts of ended turns and tokens.
const topWindow = time.Minute

func topCommand(s *shell.Session) *cobra.Command {
	var once bool
	var interval time.Duration
	var limit int
	cmd := &cobra.Command{
		Use: "top", Short: "Watch the service: queue, running turns, lanes, workers", Args: cobra.NoArgs,
		Long: `Watch the service in the terminal: the queue and its age, what ended in the last
minute, models that are down, open turns, lanes and workers. It refreshes every
--interval. Keys: q or Ctrl-C quits, space refreshes at once, arrows, page keys, Home
and End (or k, j, g and G) scroll. With --once, or if the output is not a terminal, it
prints once; -o json prints one object per refresh.

` + shell.ExitHelp,
		Example: `  turnctl top
  turnctl top --once | head
  turnctl top --interval 10s -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond || interval > time.Hour {
				return shell.Misused("--interval is %s: it must be 100ms to 1h", interval)
			}
			if limit < 1 || limit > maxLimit {
				return shell.Misused("--limit is %d: it must be 1 to %d", limit, maxLimit)
			}
			once = once || !s.Out.Terminal && !s.JSON()
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				return top(cmd.Context(), s, db.Store, once, interval, limit)
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print once and exit")
	shell.DurationFlag(cmd.Flags(), &interval, "interval", 2*time.Second, "the refresh interval")
	cmd.Flags().IntVar(&limit, "limit", 15, "the maximum number of open turns and of lanes, 1 to 100")
	return cmd
}

// A topState is what top shows at one moment.
type topState struct {
	operate.Totals
	Down      []modelhealth.Health // used models that are down
	Levels    []operate.AgentLevel // that are not normal, or are pinned
	Scheduler operate.SchedulerSettings
	Workers   []presence.Heartbeat
	Refused   *presence.Refusal // the longest refusal of the database; nil: it refuses nothing
	Turns     []waiting.Turn
	Lanes     []operate.LaneView
}

// topView is the JSON output of top.
type topView struct {
	Now             time.Time          `json:"now"`
	Waiting         int                `json:"waiting_messages"`
	OldestMs        int64              `json:"oldest_due_ms"` // 0: nothing is due
	Running         int                `json:"running_turns"`
	Queued          int                `json:"queued_turns"`
	WaitingTurns    int                `json:"waiting_turns"`
	WaitsFor        []views.Tally      `json:"turns_wait_for"` // by reason
	EndedPerMin     int                `json:"ended_last_minute"`
	SucceededPerMin int                `json:"succeeded_last_minute"`
	DegradedPerMin  int                `json:"degraded_last_minute"`
	FailedPerMin    int                `json:"failed_last_minute"`
	TokensPerMin    int64              `json:"tokens_last_minute"`
	Down            []views.Model      `json:"models_down"`
	Levels          []views.AgentLevel `json:"levels"` // that are not normal, or are pinned
	Scheduler       views.Scheduler    `json:"scheduler"`
	Workers         []views.Worker     `json:"workers"`
	Refused         *refusedView       `json:"refused_writes"` // the longest; null: none
	Turns           []views.Turn       `json:"turns"`
	Lanes           []views.Lane       `json:"lanes"`
}

// A refusedView is a write that the database refuses.
type refusedView struct {
	ForMs    int64  `json:"refused_for_ms"`
	Attempts int    `json:"attempts"`
	SQLState string `json:"sqlstate"`
	Message  string `json:"message"`
}

func viewRefused(r *presence.Refusal) *refusedView {
	if r == nil {
		return nil
	}
	return &refusedView{views.Millis(r.For), r.Attempts, r.SQLState, r.Message}
}

func viewTop(v topState) topView {
	return topView{
		v.Now, v.Waiting, views.Millis(v.Oldest), v.Running, v.Queued, v.WaitingTurns,
		views.All(v.Waits, views.OfTally), v.Ended, v.Succeeded, v.Degraded, v.Failed, v.Tokens,
		views.All(v.Down, views.OfModel), views.All(v.Levels, views.OfAgentLevel), views.OfScheduler(v.Scheduler),
		views.All(v.Workers, views.OfWorker), viewRefused(v.Refused),
		views.All(v.Turns, views.OfTurn), views.All(v.Lanes, views.OfLane),
	}
}

func readTop(ctx context.Context, store *operate.Store, limit int) (v topState, err error) {
	if v.Totals, err = store.Totals(ctx, topWindow); err != nil {
		return v, err
	}
	models, err := store.Models(ctx)
	if err != nil {
		return v, err
	}
	v.Down = slices.DeleteFunc(models, func(m modelhealth.Health) bool { return !m.Down() || !m.Used() })
	levels, err := store.Levels(ctx)
	if err != nil {
		return v, err
	}
	v.Levels = diagnosis.NotNormal(levels)
	if v.Scheduler, err = store.SchedulerSettings(ctx); err != nil {
		return v, err
	}
	if v.Workers, err = store.Workers(ctx); err != nil {
		return v, err
	}
	v.Refused = refusedWrite(ctx, store, v.Workers)
	if v.Turns, err = store.OpenTurns(ctx, limit); err != nil {
		return v, err
	}
	v.Lanes, err = store.Lanes(ctx, operate.Page{Limit: limit})
	return v, err
}

// refusedWrite returns the longest refusal of the database. A worker whose heartbeats are refused is silent: then it
// tries a write.
func refusedWrite(ctx context.Context, store *operate.Store, workers []presence.Heartbeat) *presence.Refusal {
	if r := presence.Longest(nil, workers); r != nil {
		return r
	}
	if !slices.ContainsFunc(workers, func(w presence.Heartbeat) bool { return w.State() == presence.Silent }) {
		return nil
	}
	if err := store.TryWrite(ctx); err != nil && !storage.Away(err) {
		return &presence.Refusal{Attempts: 1, SQLState: storage.Cause(err), Message: err.Error()}
	}
	return nil
}

// top refreshes until ctx ends, which is no error.
func top(ctx context.Context, s *shell.Session, store *operate.Store, once bool, interval time.Duration,
	limit int) error {
	if !once && !s.JSON() {
		return liveTop(ctx, s, store, interval, limit)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		v, err := readTop(ctx, store, limit)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		switch {
		case s.JSON() && once:
			err = shell.WriteJSON(s.Stdout, viewTop(v))
		case s.JSON():
			err = shell.WriteJSONLine(s.Stdout, viewTop(v))
		default:
			drawTop(s.Out, term.Clock{Now: v.Now, Zone: s.Zone}, v)
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

// liveTop draws on the terminal until ctx ends or q is typed. It shows database errors and
// tries again.
func liveTop(ctx context.Context, s *shell.Session, store *operate.Store, interval time.Duration, limit int) error {
	t, leave := term.EnterLive(ctx, s.Stdin, s.Out)
	defer leave()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	v, err := readTop(ctx, store, limit)
	answered := s.Now()
	for {
		if err == nil {
			answered = s.Now()
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := t.Draw(pageOf(s, v), statusOf(s, err, s.Now().Sub(answered))); err != nil {
			return err
		}
		switch t.Next(ctx, tick.C) {
		case term.LiveQuit:
			return nil
		case term.LiveLook:
			v, err = refreshTop(ctx, store, limit, v)
		case term.LiveDraw:
		}
	}
}

// refreshTimeout is the timeout of a refresh: the terminal does not react meanwhile.
const refreshTimeout = 5 * time.Second

// refreshTop returns the new state, or the old one with the error.
func refreshTop(ctx context.Context, store *operate.Store, limit int, before topState) (topState, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	v, err := readTop(ctx, store, limit)
	if err != nil {
		return before, err
	}
	return v, nil
}

// pageOf returns a function that draws the state on a screen.
func pageOf(s *shell.Session, v topState) func(*term.Screen) {
	return func(out *term.Screen) {
		if !v.Now.IsZero() {
			drawTop(out, term.Clock{Now: v.Now, Zone: s.Zone}, v)
		}
	}
}

func statusOf(s *shell.Session, err error, silent time.Duration) term.Cell {
	if err == nil {
		return term.Cell{}
	}
	return term.Cell{Text: "no answer from the database for " + term.Coarse(silent) + ": " + term.OneLine(
		s.Masker.String(err.Error()), 0), Tone: term.Bad}
}

func drawTop(s *term.Screen, c term.Clock, v topState) {
	alive, slots := 0, 0
	for _, w := range v.Workers {
		if w.State() == presence.Alive {
			alive++
			slots += w.Slots
		}
	}
	s.Line("%s  %s", s.Paint(term.Bold, "turnkeeper"), s.Paint(term.Dim, c.Moment(v.Now)))
	showPause(s, c, v.Scheduler)
	oldest := "none ready"
	if v.Waiting > 0 && v.Oldest > 0 {
		oldest = "the oldest due " + term.Coarse(v.Oldest) + " ago"
	}
	s.Line("queue    %s, %s", term.Plural(v.Waiting, "message"), oldest)
	s.Line("turns    %d running of %s on %s, %d queued, %d waiting", v.Running, term.Plural(slots, "slot"),
		term.Plural(alive, "worker"), v.Queued, v.WaitingTurns)
	for i, t := range v.Waits {
		label := "         "
		if i == 0 {
			label = "waits    "
		}
		s.Line("%s%s", label, s.Paint(term.Warned, t.Long(c.Ago)))
	}
	if r := v.Refused; r != nil {
		label := "writes   "
		for _, line := range term.Wrap("the database refuses writes: "+words.Refusing(r.For, r.Attempts, r.SQLState)+
			"; "+words.WriteAdvice(r.SQLState), s.Readable()-len(label)) {
			s.Line("%s%s", label, s.Paint(term.Bad, line))
			label = "         "
		}
	}
	s.Line("minute   %s, %d succeeded, %d degraded, %d failed, %s tokens", term.Plural(v.Ended, "turn")+" ended",
		v.Succeeded, v.Degraded, v.Failed, term.Thousands(v.Tokens))
	for i, m := range v.Down {
		label := "         "
		if i == 0 {
			label = "models   "
		}
		s.Line("%s%s", label, s.Paint(term.Bad, fmt.Sprintf("%s is down since %s, next try %s: %s", m.Model,
			c.At(m.DownSince), c.At(m.Until), term.OneLine(m.ErrorClass+": "+m.Error, term.PreviewColumns))))
	}
	for i, a := range v.Levels {
		label := "         "
		if i == 0 {
			label = "levels   "
		}
		s.Line("%s%s", label, s.Paint(levelCell(a.Level).Tone, diagnosis.LevelText(c, a)))
	}
	if len(v.Turns) > 0 {
		s.Line("")
		showOpenTurns(s, c, v.Turns)
	}
	if len(v.Lanes) > 0 {
		s.Line("")
		showLanes(s, c, v.Lanes)
	}
	if len(v.Workers) > 0 {
		s.Line("")
		showWorkers(s, c, v.Workers)
	}
}

func showOpenTurns(s *term.Screen, c term.Clock, turns []waiting.Turn) {
	t := term.NewTable(">TURN", "STATE", "AGENT", "CONVERSATION", ">MESSAGE", ">ROUNDS", ">CALLS", ">TOKENS", "SINCE",
		"WORKER", "NOW")
	for _, turn := range turns {
		since := turn.GrantedAt
		if since.IsZero() {
			since = turn.CreatedAt
		}
		t.Add(fmt.Sprint(turn.ID), turnCell(turn.Turn), turn.Agent, words.Conversation(turn.User, turn.Conversation),
			fmt.Sprint(turn.MessageID), fmt.Sprint(turn.InferenceRounds),
			fmt.Sprint(turn.ExecutedCalls), term.Thousands(turn.Usage.Total()), c.Ago(since),
			term.OrDash(string(turn.WorkerID)), term.OrDash(waiting.Doing(turn, c.Ago)))
	}
	t.Print(s)
}
