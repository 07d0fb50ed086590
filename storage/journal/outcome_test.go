package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// An after holds the state of all tables that the end of a dispatch writes to.
type after struct {
	Turn       turnkeeper.TurnState
	Stop       turnkeeper.StopReason
	TurnEnded  bool
	TurnWaits  bool          // it has a due time
	TurnDue    time.Duration // after the end; 0: at once
	Message    turnkeeper.MessageState
	Closed     bool
	LastError  string
	Reply      string
	Outcome    turnkeeper.TurnState
	Inner      string
	LaneHeld   bool
	Failures   int
	LaneWaits  time.Duration // after the end; 0: no back-off
	Log        string
	LogEnded   bool
	Job        string
	GrantKept  bool
	ErrorClass string
}

func (h *env) after(d *storagetest.Dispatch) after {
	h.T.Helper()
	view, err := h.ViewTurn(h.T.Context(), d.Grant.TurnID)
	if err != nil {
		h.T.Fatal(err)
	}
	lanes, err := h.Lanes(h.T.Context(), operate.Page{Agent: view.Turn.Agent})
	if err != nil || len(lanes) > 1 {
		h.T.Fatalf("lanes %v, error %v", lanes, err)
	}
	var lease granting.Lease // of a lane that has nothing to remember
	if len(lanes) > 0 {
		lease = lanes[0].Lease
	}
	last := view.Dispatches[len(view.Dispatches)-1]
	span := func(at time.Time) time.Duration {
		if at.IsZero() {
			return 0
		}
		return at.Sub(last.EndedAt).Round(time.Second)
	}
	a := after{
		Turn: view.Turn.State, Stop: view.Turn.StopReason, TurnEnded: !view.Turn.EndedAt.IsZero(),
		TurnWaits: !view.Turn.DueAt.IsZero(), TurnDue: span(view.Turn.DueAt),
		Message: view.Message.State, Closed: !view.Message.ClosedAt.IsZero(), LastError: view.Message.LastError,
		Inner:    view.Turn.InnerDialogue,
		LaneHeld: lease.Held(), Failures: lease.Failures, LaneWaits: span(lease.NotBefore),
		Log: last.Outcome, LogEnded: !last.EndedAt.IsZero(), GrantKept: view.Turn.GrantID != "",
		ErrorClass: view.Turn.ErrorClass,
		Job: storagetest.One[string](h,
			"select coalesce((select state::text from turnkeeper.river_job where id = $1), '')", d.Grant.JobID),
	}
	if view.Reply != nil {
		a.Reply, a.Outcome = view.Reply.Body, view.Reply.Outcome
	}
	return a
}

func TestOutcomes(t *testing.T) {
	cases := map[string]struct {
		failuresBefore int
		outcome        turnlog.Outcome
		ending         turnlog.Consequence
		want           after
	}{
		"succeeded": {
			failuresBefore: 2,
			outcome: turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone,
				Reply: "done", Backoff: time.Hour},
			ending: storagetest.Answered,
			want: after{
				Turn: turnkeeper.TurnSucceeded, Stop: turnkeeper.StopNone, TurnEnded: true,
				Message: turnkeeper.MessageSucceeded, Closed: true,
				Reply: "done", Outcome: turnkeeper.TurnSucceeded, Log: "finished", GrantKept: true,
			},
		},
		"degraded": {
			failuresBefore: 2,
			outcome: turnlog.Outcome{
				State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopInferenceError,
				Reply:      "Tool results: 1 succeeded, 0 failed.",
				ErrorClass: "overloaded", Error: "the model is overloaded",
			},
			ending: turnlog.Consequence{Message: turnkeeper.MessageDegraded, Log: "finished"},
			want: after{
				Turn: turnkeeper.TurnDegraded, Stop: turnkeeper.StopInferenceError, TurnEnded: true,
				Message: turnkeeper.MessageDegraded, Closed: true,
				LastError: "the model is overloaded", ErrorClass: "overloaded",
				Reply: "Tool results: 1 succeeded, 0 failed.", Outcome: turnkeeper.TurnDegraded, Log: "finished",
				GrantKept: true,
			},
		},
		"without a reply": {
			outcome: turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone,
				InnerDialogue: "nothing to do"},
			ending: storagetest.Answered,
			want: after{
				Turn: turnkeeper.TurnSucceeded, Stop: turnkeeper.StopNone, TurnEnded: true,
				Message: turnkeeper.MessageSucceeded, Closed: true,
				Inner: "nothing to do", Log: "finished", GrantKept: true,
			},
		},
		"failed, to be tried again": {
			failuresBefore: 1,
			outcome: turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
				Error: "no", ErrorClass: "transport", Retry: true},
			ending: turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished",
				LaneBackoff: 4 * time.Second},
			want: after{
				Turn: turnkeeper.TurnFailed, Stop: turnkeeper.StopInferenceError, TurnEnded: true,
				Message: turnkeeper.MessageWaiting, LastError: "no",
				ErrorClass: "transport", Failures: 2, LaneWaits: 4 * time.Second, Log: "finished", GrantKept: true,
			},
		},
		"failed for good": {
			failuresBefore: 2,
			outcome: turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
				Error: "no", Reply: "could not be answered"},
			ending: turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished",
				LaneBackoff: 8 * time.Second},
			want: after{
				Turn: turnkeeper.TurnFailed, Stop: turnkeeper.StopInferenceError, TurnEnded: true,
				Message: turnkeeper.MessageFailed, Closed: true,
				LastError: "no", Reply: "could not be answered", Outcome: turnkeeper.TurnFailed, Failures: 3,
				LaneWaits: 8 * time.Second,
				Log:       "finished", GrantKept: true,
			},
		},
		"cancelled": {
			failuresBefore: 2,
			outcome: turnlog.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled,
				Reply: "This turn was cancelled."},
			ending: turnlog.Consequence{Message: turnkeeper.MessageCancelled, Log: "finished"},
			want: after{
				Turn: turnkeeper.TurnCancelled, Stop: turnkeeper.StopCancelled, TurnEnded: true,
				Message: turnkeeper.MessageCancelled, Closed: true,
				Reply: "This turn was cancelled.", Outcome: turnkeeper.TurnCancelled, Failures: 2, Log: "finished",
				GrantKept: true,
			},
		},
		"handed back": {
			failuresBefore: 2,
			outcome:        turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "the worker is shutting down"},
			ending:         turnlog.Consequence{Message: turnkeeper.MessageSucceeded, Log: "handed_back"},
			want: after{Turn: turnkeeper.TurnQueued, Message: turnkeeper.MessageRunning, Failures: 2,
				Log: "handed_back"},
		},
		"deferred": {
			failuresBefore: 2,
			outcome: turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "no budget", ErrorClass: "budget",
				Backoff: time.Hour},
			ending: turnlog.Consequence{Message: turnkeeper.MessageSucceeded, Log: "deferred"},
			want: after{
				Turn: turnkeeper.TurnQueued, TurnWaits: true, TurnDue: time.Hour, Message: turnkeeper.MessageRunning,
				ErrorClass: "budget", Failures: 2, Log: "deferred",
			},
		},
	}
	h := newEnv(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			// Reset the lane for each case.
			h.Register("agent", false)
			h.Exec("update turnkeeper.messages set state = 'cancelled', closed_at = now() where state = 'waiting'")
			h.Exec("update turnkeeper.leases set failures = $1, not_before = null", c.failuresBefore)
			h.Submit("agent", "", "x")
			all := h.Dispatch("worker-1")
			d := all[len(all)-1]
			h.Exec("update turnkeeper.leases set failures = $1, not_before = timestamptz '2100-01-01'",
				c.failuresBefore)
			if err := d.Append(t.Context(), turnlog.Entry{Outcome: &c.outcome}, c.ending); err != nil {
				t.Fatal(err)
			}
			c.want.LogEnded = true
			got := h.after(d)
			kept := storagetest.One[bool](h,
				"select exists (select from turnkeeper.leases where lane = $1 and not_before = timestamptz '2100-01-01')", d.Grant.Lane)
			if kept {
				got.LaneWaits = 0
			}
			if state := c.outcome.State; kept != (state == turnkeeper.TurnQueued || state == turnkeeper.TurnCancelled) {
				t.Errorf("the lane keeps the pause that it had: %t", kept)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c.outcome.State == turnkeeper.TurnQueued { // make room for the next case
				h.Exec("update turnkeeper.turns set due_at = null where state = 'queued'")
				for _, d := range h.Dispatch("worker-2") {
					d.Cancel(t)
				}
			}
		})
	}
}

// TestWhetherATurnWaits ends dispatches with the outcome "waiting". A turn continues at once if it
// has no open call, or if a result has arrived for it. Results for another turn have no effect.
func TestWhetherATurnWaits(t *testing.T) {
	h, other, _ := openCalls(t)
	other.must(h.Arrive(t.Context(), other.claim("w"), storagetest.Result(storagetest.Key(1, 1), other.nonce(1, 1),
		turnkeeper.CallSucceeded, "ok")))
	const arrived = "update turnkeeper.awaited_calls set arrived_at = clock_timestamp(), state = 'succeeded'"
	const closed = "update turnkeeper.awaited_calls set closed_at = clock_timestamp()"
	const asks = `insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, audience, hold, expires_at)
		select $1, 1, 1, 'question', count(*) + 1, 't', '{}', 'h', '', '', '{}', false, clock_timestamp() + interval '1 hour' from turnkeeper.asks where turn_id = $1`
	const answered = "update turnkeeper.asks set state = 'denied', answered_by = 'ann', closed_at = clock_timestamp() where turn_id = $1 and n = 1"
	const seen = "update turnkeeper.asks set seen_at = clock_timestamp() where turn_id = $1 and n = 1"
	for range 2 {
		h.Exec(asks, other.Grant.TurnID)
	}
	h.Exec(answered, other.Grant.TurnID)
	for name, c := range map[string]struct {
		open    bool
		changes []string
		want    turnkeeper.TurnState
	}{
		"none is open":          {false, nil, turnkeeper.TurnQueued},
		"four are open":         {true, nil, turnkeeper.TurnWaiting},
		"one has arrived":       {true, []string{arrived + ofCall}, turnkeeper.TurnQueued},
		"one is in the journal": {true, []string{arrived + ofCall, closed + ofCall}, turnkeeper.TurnWaiting},
		"one is, and another has arrived": {true, []string{arrived + " where turn_id = $1", closed + ofCall},
			turnkeeper.TurnQueued},
		"all are in the journal": {true, []string{closed + " where turn_id = $1"}, turnkeeper.TurnQueued},
		"all are, and so is what has come": {true, []string{arrived + ofCall, closed + " where turn_id = $1"},
			turnkeeper.TurnQueued},
		"it asks":                     {false, []string{asks}, turnkeeper.TurnWaiting},
		"an answer has come":          {false, []string{asks, answered}, turnkeeper.TurnQueued},
		"one of two answers has come": {true, []string{asks, asks, answered}, turnkeeper.TurnQueued},
		"the answer was seen":         {false, []string{asks, answered, seen}, turnkeeper.TurnQueued},
		"one of two answers was seen": {false, []string{asks, asks, answered, seen}, turnkeeper.TurnWaiting},
	} {
		h.Submit("desk", name, "x")
		for _, d := range h.Dispatch("worker-1") {
			if d.Record.Turn.Conversation != name { // a turn of an earlier case, which continues
				continue
			}
			if c.open {
				scene{h, d}.openRunning()
			}
			for _, change := range c.changes {
				h.Exec(change, d.Grant.TurnID)
			}
			d.Wait(t)
			if got := storagetest.One[turnkeeper.TurnState](h, "select state from turnkeeper.turns where id = $1",
				d.Grant.TurnID); got != c.want {
				t.Errorf("%s: the turn is %s, want %s", name, got, c.want)
			}
			parked := storagetest.One[bool](h, "select home_lane is not null from turnkeeper.turns where id = $1",
				d.Grant.TurnID)
			if want := c.want == turnkeeper.TurnWaiting && slices.Contains(c.changes, asks); parked != want {
				t.Errorf("%s: parked: %v, want %v", name, parked, want)
			}
		}
	}
}

// TestACancellationMeetsTheEndOfADispatch ends a turn with a request to cancel with each outcome,
// and a turn without such a request with each outcome. Another turn has a request to cancel all the
// time.
func TestACancellationMeetsTheEndOfADispatch(t *testing.T) {
	h := newEnv(t)
	ask := func(d *storagetest.Dispatch, reason string) {
		h.Exec("select turnkeeper.ask_end($1, 'cancel', $2)", d.Grant.TurnID, reason)
	}
	ask(h.TurnOf("clerk", "worker-1"), "another reason")
	again := turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished"}
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no"}
	for name, c := range map[string]struct {
		outcome     turnlog.Outcome
		ending      turnlog.Consequence
		want, asked string // states of the turn and of its message, without and with a request
	}{
		"handed back": {turnlog.Outcome{State: turnkeeper.TurnQueued}, turnlog.Consequence{Log: "handed_back"},
			"queued running", "cancelled cancelled"},
		"waits": {turnlog.Outcome{State: turnkeeper.TurnWaiting}, turnlog.Consequence{Log: "waiting"},
			"waiting running", "cancelled cancelled"},
		"fails, once": {failed, again, "failed waiting", "failed cancelled"},
		"fails for good": {failed, turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished"},
			"failed failed", "failed failed"},
		"succeeds after it": {*storagetest.Succeeded("done"), storagetest.Answered, "succeeded succeeded",
			"succeeded succeeded"},
	} {
		for _, asked := range []bool{false, true} {
			conversation := fmt.Sprint(name, asked)
			h.Submit("desk", conversation, "x")
			for _, d := range h.Dispatch("worker-1") {
				// a turn of an earlier case, which was handed back or failed once
				if d.Record.Turn.Conversation != conversation {
					continue
				}
				if c.outcome.State == turnkeeper.TurnWaiting {
					scene{h, d}.openRunning()
				}
				want := c.want
				if asked {
					want = c.asked
					ask(d, name)
				}
				before := storagetest.One[int](h, "select count(*) from turnkeeper.requested_ends")
				if err := d.Append(t.Context(), turnlog.Entry{Outcome: &c.outcome}, c.ending); err != nil {
					t.Fatal(err)
				}
				got := storagetest.One[string](h,
					"select t.state || ' ' || m.state from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id where t.id = $1", d.Grant.TurnID)
				if got != want {
					t.Errorf("%s, asked for: %t: turn and message are %s, want %s", name, asked, got, want)
				}
				// A message whose turn has failed is closed with a new turn, which has the reason.
				made := storagetest.One[int](h, "select count(*) from turnkeeper.requested_ends") - before
				reason := storagetest.One[string](h,
					"select coalesce(min(c.reason), '') from turnkeeper.requested_ends c join turnkeeper.turns t on t.id = c.turn_id and t.message_id = $1 and t.id <> $2",
					d.Record.Turn.MessageID, d.Grant.TurnID)
				if own := want == "failed cancelled"; made == 1 != own || own && reason != name {
					t.Errorf("%s, asked for: %t: %d cancellations more, for %q", name, asked, made, reason)
				}
			}
		}
	}
}

// TestAnEndOfAnotherGrant reclaims a turn under a grant that it no longer has. Nothing changes.
func TestAnEndOfAnotherGrant(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	before := h.Rows()
	ctx := t.Context()
	err := h.InTick(ctx, func(tick *grants.Tick) error {
		if _, _, err := tick.Snapshot(ctx, true); err != nil {
			return err
		}
		return tick.Requeue(ctx, granting.LostGrant{
			TurnID: d.Grant.TurnID, GrantID: turnkeeper.GrantID(uuid.NewString()), JobID: d.Grant.JobID,
			WorkerID: d.Grant.WorkerID,
		})
	})
	if !errors.Is(err, turnkeeper.ErrFenced) {
		t.Errorf("error %v", err)
	}
	for _, row := range storagetest.Changed(before, h.Rows()) {
		t.Errorf("changed %s", row)
	}
}

// TestWhoIsToldOfAnEnd checks the notifications at the end of a dispatch: "inbox" if the scheduler
// may have work, and "freed" for the free slot.
func TestWhoIsToldOfAnEnd(t *testing.T) {
	h := newEnv(t)
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no"}
	for name, c := range map[string]struct {
		outcome turnlog.Outcome
		ending  turnlog.Consequence
		want    string
	}{
		"succeeded": {*storagetest.Succeeded("done"), storagetest.Answered, "inbox freed"},
		"failed":    {failed, turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished"}, "inbox freed"},
		"failed, once": {failed, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished",
			LaneBackoff: time.Minute}, "inbox"},
		"is handed back": {turnlog.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Minute},
			turnlog.Consequence{Log: "handed_back"}, "inbox"},
	} {
		h.Submit("desk", name, "x")
		d := h.Dispatch("worker-1")[0]
		rings := h.Heard(func() {
			if err := d.Append(t.Context(), turnlog.Entry{Outcome: &c.outcome}, c.ending); err != nil {
				t.Error(err)
			}
		})
		if got := strings.Join(rings, ", "); got != c.want {
			t.Errorf("a turn that %s: it rings %q, want %q", name, got, c.want)
		}
	}
}

func TestAnOutcomeIsWrittenWholeOrNotAtAll(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1)})
	for name, o := range map[string]turnlog.Outcome{
		"a state that no turn ends in": {State: turnkeeper.TurnRunning, StopReason: turnkeeper.StopNone, Reply: "x"},
		"an unknown stop reason":       {State: turnkeeper.TurnSucceeded, StopReason: "bored", Reply: "x"},
	} {
		if err := d.Append(t.Context(), turnlog.Entry{Events: storagetest.Events(turnkeeper.EventNotice), Outcome: &o},
			storagetest.Answered); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if n := storagetest.One[int](h,
		"select (select count(*) from turnkeeper.replies) + (select count(*) from turnkeeper.turn_events)"); n != 0 {
		t.Errorf("refused ends left %d rows", n)
	}
	d.Finish(t, "after all")
}

func TestDeferredTurnWaitsAndKeepsItsLane(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("first")
	deferred := turnlog.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Hour}
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: &deferred},
		turnlog.Consequence{Log: "deferred"}); err != nil {
		t.Fatal(err)
	}
	h.Submit("clerk", "", "second")
	if all := h.Dispatch("w"); len(all) != 0 {
		t.Fatalf("dispatched %q while the lane's turn is deferred", all[0].Record.Message.Body)
	}
	if due, err := h.NextDue(t.Context(), h.Time()); err != nil || due > time.Hour || due < 50*time.Minute {
		t.Errorf("next due in %v, error %v", due, err)
	}
	h.Exec("update turnkeeper.turns set due_at = clock_timestamp() where state = 'queued'")
	if all := h.Dispatch("w"); len(all) != 1 || all[0].Record.Message.Body != "first" ||
		all[0].Record.Turn.Dispatches != 2 {
		t.Fatalf("dispatched %+v", all)
	}
}

func TestFailedLaneBacksOffAndTriesTheSameMessage(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("first")
	h.Submit("clerk", "", "second")
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "no", Retry: true}
	err := d.Append(t.Context(), turnlog.Entry{Outcome: &failed},
		turnlog.Consequence{Message: turnkeeper.MessageWaiting,
			Log: "finished", LaneBackoff: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if all := h.Dispatch("w"); len(all) != 0 {
		t.Fatal("dispatched within the back-off")
	}
	if due, err := h.NextDue(t.Context(), h.Time()); err != nil || due > 2*time.Minute || due <= 0 {
		t.Errorf("next due in %v, error %v", due, err)
	}
	h.Exec("update turnkeeper.leases set not_before = clock_timestamp()")
	all := h.Dispatch("w")
	if len(all) != 1 || all[0].Record.Message.Body != "first" || all[0].Record.Turn.Attempt != 2 ||
		all[0].Record.Failures != 1 {
		t.Fatalf("dispatched %+v", all)
	}
	all[0].Finish(t, "done")
	turns, err := h.TurnsOf(t.Context(), d.Record.Message.ID)
	if err != nil || len(turns) != 2 || turns[0].State != turnkeeper.TurnFailed ||
		turns[1].State != turnkeeper.TurnSucceeded {
		t.Errorf("turns %+v, error %v", turns, err)
	}
}

// A dispatch ends while another session ends the pause of its lane. It can be there only since the clock was set back:
// a lane that pauses is not granted.
func TestAnEndMeetsTheEndOfAPause(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("first")
	h.Submit("clerk", "", "second")
	h.Exec("update turnkeeper.leases set failures = 2, not_before = now() + interval '1 hour'")
	h.Exec("update turnkeeper.messages set queue_rank = now() + interval '1 hour' where state = 'waiting'")
	resume, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resume.Rollback(context.Background()) }()
	if _, err := resume.Exec(t.Context(), "update turnkeeper.leases set not_before = null"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- d.Append(t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnSucceeded,
			StopReason: turnkeeper.StopNone, Reply: "done"}}, storagetest.Answered)
	}()
	h.AwaitLockWaits(1)
	if err := resume.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.leases"); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if next := h.Dispatch("w"); len(next) != 1 || next[0].Record.Message.Body != "second" {
		t.Errorf("dispatched %+v", next)
	}
}

// The message behind a turn that succeeds is due although its lane pauses, as after the clock was set back.
func TestAnEndEndsThePauseOfItsLane(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("first")
	h.Submit("clerk", "", "second")
	h.Exec("update turnkeeper.leases set failures = 2, not_before = now() + interval '100 s'")
	h.Exec("update turnkeeper.messages set queue_rank = now() + interval '100 s' where state = 'waiting'")
	d.Finish(t, "done")
	if storagetest.One[bool](h,
		"select turnkeeper.backs_off(queue_rank, priority) from turnkeeper.messages where state = 'waiting'") {
		t.Error("the message still backs off")
	}
}

func TestLostDispatches(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1)})
	h.Lose(d)
	got := h.after(d)
	want := after{Turn: turnkeeper.TurnQueued, Message: turnkeeper.MessageRunning, Log: "lost", LogEnded: true,
		Job: "cancelled"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	next := h.Dispatch("worker-2")[0]
	if next.Grant.Token != d.Grant.Token+1 || next.Record.Turn.Losses != 1 || next.Record.Turn.Dispatches != 2 ||
		len(next.Record.Rounds) != 1 {
		t.Errorf("dispatched again as %+v", next.Record.Turn)
	}
	// This worker is lost before it writes anything. The log and the views still name it, and not
	// the previous worker.
	lanes, err := h.Lanes(t.Context(), operate.Page{})
	if err != nil || lanes[0].Lease.WorkerID != "worker-2" {
		t.Errorf("the lane's holder is %q, error %v", lanes[0].Lease.WorkerID, err)
	}
	h.Lose(next)
	view, err := h.ViewTurn(t.Context(), d.Grant.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	var holders []turnkeeper.WorkerID
	for _, g := range view.Dispatches {
		holders = append(holders, g.WorkerID)
	}
	if diff := cmp.Diff([]turnkeeper.WorkerID{"worker-1", "worker-2"}, holders); diff != "" {
		t.Errorf("holders (-want +got):\n%s", diff)
	}
}

func TestUnclaimedGrantIsNoLoss(t *testing.T) {
	h := newEnv(t)
	h.Submit("clerk", "", "x")
	d := h.Dispatch("")[0]
	h.Lose(d)
	if got := h.after(d); got.Log != "unclaimed" || got.Job != "cancelled" {
		t.Errorf("log %s, job %s", got.Log, got.Job)
	}
	if n := storagetest.One[int](h, "select losses from turnkeeper.turns"); n != 0 {
		t.Errorf("%d losses", n)
	}
}

func TestCloseOfATurnThatLostItsWorkerTooOften(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{
		Round:  storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce),
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectOnce)},
		Events: storagetest.Events(turnkeeper.EventTurnStart),
	})
	h.Exec("update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp()")
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		lost, err := tick.Lost(ctx, 10)
		if err != nil {
			return err
		}
		if err := tick.SettleCalls(ctx, lost[0].TurnID, "unknown", "not run", "not run", "ended"); err != nil {
			return err
		}
		rounds, err := tick.Rounds(ctx, lost[0].TurnID)
		if err != nil {
			return err
		}
		if rounds[0].Calls[0].State != turnkeeper.CallUnknown || rounds[0].Calls[1].State != turnkeeper.CallCancelled {
			t.Errorf("settled as %s and %s", rounds[0].Calls[0].State, rounds[0].Calls[1].State)
		}
		return tick.Close(ctx, lost[0], turnlog.Outcome{
			State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopWorkerLost, Reply: "sorry",
			ErrorClass: "worker_lost",
		}, storagetest.Events(turnkeeper.EventTurnComplete))
	})
	want := after{
		Turn: turnkeeper.TurnDegraded, Stop: turnkeeper.StopWorkerLost, TurnEnded: true,
		Message: turnkeeper.MessageDegraded, Closed: true,
		Reply: "sorry", Outcome: turnkeeper.TurnDegraded, Log: "lost", LogEnded: true, Job: "cancelled",
		GrantKept: true, ErrorClass: "worker_lost",
	}
	if diff := cmp.Diff(want, h.after(d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	stream, err := h.Events(t.Context(), d.Grant.TurnID, 0, 10)
	if err != nil || len(stream) != 2 || stream[1].Type != turnkeeper.EventTurnComplete {
		t.Errorf("events %+v, error %v", stream, err)
	}
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: storagetest.Succeeded("late")},
		storagetest.Answered); !errors.Is(err, turnkeeper.ErrFenced) {
		t.Errorf("its worker after all: %v", err)
	}
}

func TestScheduledTurn(t *testing.T) {
	h := newEnv(t)
	h.Register("clerk", false, turnkeeper.Schedule{Name: "morning", Cron: "0 6 * * *", TimeZone: "UTC",
		Conversation: "log", Message: "Wake up."})
	slot := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	for range 2 { // a slot makes one message, even if it is decided twice
		h.Tick(func(ctx context.Context, tick *grants.Tick) error {
			due, err := tick.DueSchedules(ctx, 10)
			if err != nil {
				return err
			}
			d := granting.SlotDecision{Slot: slot, NextDue: slot.Add(24 * time.Hour)}
			d.Schedule = granting.DueSchedule{Agent: "clerk", Name: "morning", Conversation: "log", Message: "Wake up."}
			if len(due) > 0 {
				d.Schedule = due[0]
			}
			return tick.Fire(ctx, d)
		})
	}
	all := h.Dispatch("w")
	if len(all) != 1 {
		t.Fatalf("%d turns, want 1", len(all))
	}
	m := all[0].Record.Message
	if m.Trigger != turnkeeper.TriggerSchedule || m.Schedule != "morning" || !m.Slot.Equal(slot) ||
		m.Conversation != "log" || m.Body != "Wake up." || !m.DueAt.Equal(slot) {
		t.Errorf("the message is %+v", m)
	}
	if all[0].Record.Turn.Trigger != turnkeeper.TriggerSchedule {
		t.Errorf("the turn's trigger is %s", all[0].Record.Turn.Trigger)
	}
	o := turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, InnerDialogue: "all is well"}
	if err := all[0].Append(t.Context(), turnlog.Entry{Outcome: &o}, storagetest.Answered); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReplyTo(t.Context(), m.ID); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("a reply without text: %v", err)
	}
}
