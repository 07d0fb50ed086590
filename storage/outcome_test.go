package storage_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/storage"
)

// after is what an ended dispatch leaves in every table it touches.
type after struct {
	Turn       turnkeeper.TurnState
	Stop       turnkeeper.StopReason
	TurnEnded  bool
	TurnDue    time.Duration // from the end; 0: none
	Message    turnkeeper.MessageState
	Closed     bool
	LastError  string
	Reply      string
	Outcome    turnkeeper.TurnState
	Inner      string
	LaneHeld   bool
	Failures   int
	LaneWaits  time.Duration // from the end; 0: not at all
	Log        string
	LogEnded   bool
	Job        string
	GrantKept  bool
	ErrorClass string
}

func (h *house) after(d *dispatch) after {
	h.t.Helper()
	view, err := h.ViewTurn(h.t.Context(), d.grant.TurnID)
	if err != nil {
		h.t.Fatal(err)
	}
	lanes, err := h.Lanes(h.t.Context(), storage.Page{Agent: view.Turn.Agent})
	if err != nil || len(lanes) != 1 {
		h.t.Fatalf("lanes %v, error %v", lanes, err)
	}
	last := view.Dispatches[len(view.Dispatches)-1]
	span := func(at time.Time) time.Duration {
		if at.IsZero() {
			return 0
		}
		return at.Sub(last.EndedAt).Round(time.Second)
	}
	a := after{
		Turn: view.Turn.State, Stop: view.Turn.StopReason, TurnEnded: !view.Turn.EndedAt.IsZero(), TurnDue: span(view.Turn.DueAt),
		Message: view.Message.State, Closed: !view.Message.ClosedAt.IsZero(), LastError: view.Message.LastError, Inner: view.Turn.InnerDialogue,
		LaneHeld: lanes[0].Lease.Held(), Failures: lanes[0].Lease.Failures, LaneWaits: span(lanes[0].Lease.NotBefore),
		Log: last.Outcome, LogEnded: !last.EndedAt.IsZero(), GrantKept: view.Turn.GrantID != "", ErrorClass: view.Turn.ErrorClass,
		Job: one[string](h, "select state::text from turnkeeper.river_job where id = $1", d.grant.JobID),
	}
	if view.Reply != nil {
		a.Reply, a.Outcome = view.Reply.Body, view.Reply.Outcome
	}
	return a
}

func TestOutcomes(t *testing.T) {
	cases := map[string]struct {
		failuresBefore int
		outcome        turnkeeper.Outcome
		ending         storage.Ending
		want           after
	}{
		"succeeded": {
			failuresBefore: 2,
			outcome:        turnkeeper.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: "done"},
			ending:         answered,
			want: after{
				Turn: turnkeeper.TurnSucceeded, Stop: turnkeeper.StopNone, TurnEnded: true, Message: turnkeeper.MessageAnswered, Closed: true,
				Reply: "done", Outcome: turnkeeper.TurnSucceeded, Log: "finished", GrantKept: true,
			},
		},
		"degraded": {
			failuresBefore: 2,
			outcome: turnkeeper.Outcome{
				State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopInferenceError, Reply: "Tool results: 1 succeeded, 0 failed.",
				ErrorClass: "overloaded", Error: "the model is overloaded",
			},
			ending: answered,
			want: after{
				Turn: turnkeeper.TurnDegraded, Stop: turnkeeper.StopInferenceError, TurnEnded: true, Message: turnkeeper.MessageAnswered, Closed: true,
				LastError: "the model is overloaded", ErrorClass: "overloaded",
				Reply: "Tool results: 1 succeeded, 0 failed.", Outcome: turnkeeper.TurnDegraded, Log: "finished", GrantKept: true,
			},
		},
		"without a reply": {
			outcome: turnkeeper.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, InnerDialogue: "nothing to do"},
			ending:  answered,
			want: after{
				Turn: turnkeeper.TurnSucceeded, Stop: turnkeeper.StopNone, TurnEnded: true, Message: turnkeeper.MessageAnswered, Closed: true,
				Inner: "nothing to do", Log: "finished", GrantKept: true,
			},
		},
		"failed, to be tried again": {
			failuresBefore: 1,
			outcome:        turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no", ErrorClass: "transport", Retry: true},
			ending:         storage.Ending{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: 4 * time.Second},
			want: after{
				Turn: turnkeeper.TurnFailed, Stop: turnkeeper.StopInferenceError, TurnEnded: true, Message: turnkeeper.MessageWaiting, LastError: "no",
				ErrorClass: "transport", Failures: 2, LaneWaits: 4 * time.Second, Log: "finished", GrantKept: true,
			},
		},
		"failed for good": {
			failuresBefore: 2,
			outcome:        turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no", Reply: "could not be answered"},
			ending:         storage.Ending{Message: turnkeeper.MessageFailed, Log: "finished", LaneBackoff: 8 * time.Second},
			want: after{
				Turn: turnkeeper.TurnFailed, Stop: turnkeeper.StopInferenceError, TurnEnded: true, Message: turnkeeper.MessageFailed, Closed: true,
				LastError: "no", Reply: "could not be answered", Outcome: turnkeeper.TurnFailed, Failures: 3, LaneWaits: 8 * time.Second,
				Log: "finished", GrantKept: true,
			},
		},
		"cancelled": {
			failuresBefore: 2,
			outcome:        turnkeeper.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled, Reply: "This turn was cancelled."},
			ending:         storage.Ending{Message: turnkeeper.MessageCancelled, Log: "finished"},
			want: after{
				Turn: turnkeeper.TurnCancelled, Stop: turnkeeper.StopCancelled, TurnEnded: true, Message: turnkeeper.MessageCancelled, Closed: true,
				Reply: "This turn was cancelled.", Outcome: turnkeeper.TurnCancelled, Failures: 2, Log: "finished", GrantKept: true,
			},
		},
		"handed back": {
			failuresBefore: 2,
			outcome:        turnkeeper.Outcome{State: turnkeeper.TurnQueued, Error: "the worker is shutting down"},
			ending:         storage.Ending{Message: turnkeeper.MessageAnswered, Log: "handed_back"},
			want:           after{Turn: turnkeeper.TurnQueued, Message: turnkeeper.MessageRunning, Failures: 2, Log: "handed_back"},
		},
		"deferred": {
			failuresBefore: 2,
			outcome:        turnkeeper.Outcome{State: turnkeeper.TurnQueued, Error: "no budget", ErrorClass: "budget", Backoff: time.Hour},
			ending:         storage.Ending{Message: turnkeeper.MessageAnswered, Log: "deferred"},
			want: after{
				Turn: turnkeeper.TurnQueued, TurnDue: time.Hour, Message: turnkeeper.MessageRunning, ErrorClass: "budget", Failures: 2, Log: "deferred",
			},
		},
	}
	h := newHouse(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			// A lane of its own for each.
			h.register("agent", false)
			h.exec("update turnkeeper.messages set state = 'cancelled', closed_at = now() where state = 'waiting'")
			h.exec("update turnkeeper.leases set failures = $1, not_before = null", c.failuresBefore)
			h.enqueue("agent", "", "x")
			all := h.dispatch("worker-1")
			d := all[len(all)-1]
			h.exec("update turnkeeper.leases set failures = $1", c.failuresBefore)
			if err := d.Append(t.Context(), turnkeeper.Entry{Outcome: &c.outcome}, c.ending); err != nil {
				t.Fatal(err)
			}
			c.want.Job, c.want.LogEnded = "completed", true
			if diff := cmp.Diff(c.want, h.after(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c.outcome.State == turnkeeper.TurnQueued { // make room for the next case
				h.exec("update turnkeeper.turns set due_at = null where state = 'queued'")
				for _, d := range h.dispatch("worker-2") {
					d.cancel(t)
				}
			}
		})
	}
}

func TestAnOutcomeIsWrittenWholeOrNotAtAll(t *testing.T) {
	h := newHouse(t)
	d := h.turn("x")
	d.append(t, turnkeeper.Entry{Round: round(1)})
	for name, o := range map[string]turnkeeper.Outcome{
		"a state that no turn ends in": {State: turnkeeper.TurnRunning, StopReason: turnkeeper.StopNone, Reply: "x"},
		"an unknown stop reason":       {State: turnkeeper.TurnSucceeded, StopReason: "bored", Reply: "x"},
	} {
		if err := d.Append(t.Context(), turnkeeper.Entry{Events: events(turnkeeper.EventNotice), Outcome: &o}, answered); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if n := one[int](h, "select (select count(*) from turnkeeper.replies) + (select count(*) from turnkeeper.turn_events)"); n != 0 {
		t.Errorf("refused ends left %d rows", n)
	}
	d.finish(t, "after all")
}

func TestDeferredTurnWaitsAndKeepsItsLane(t *testing.T) {
	h := newHouse(t)
	d := h.turn("first")
	deferred := turnkeeper.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Hour}
	if err := d.Append(t.Context(), turnkeeper.Entry{Outcome: &deferred}, storage.Ending{Log: "deferred"}); err != nil {
		t.Fatal(err)
	}
	h.enqueue("clerk", "", "second")
	if all := h.dispatch("w"); len(all) != 0 {
		t.Fatalf("dispatched %q while the lane's turn is deferred", all[0].record.Message.Body)
	}
	if due, err := h.NextDue(t.Context(), h.now()); err != nil || due > time.Hour || due < 50*time.Minute {
		t.Errorf("next due in %v, error %v", due, err)
	}
	h.exec("update turnkeeper.turns set due_at = clock_timestamp() where state = 'queued'")
	if all := h.dispatch("w"); len(all) != 1 || all[0].record.Message.Body != "first" || all[0].record.Turn.Dispatches != 2 {
		t.Fatalf("dispatched %+v", all)
	}
}

func TestFailedLaneBacksOffAndTriesTheSameMessage(t *testing.T) {
	h := newHouse(t)
	d := h.turn("first")
	h.enqueue("clerk", "", "second")
	failed := turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no", Retry: true}
	err := d.Append(t.Context(), turnkeeper.Entry{Outcome: &failed}, storage.Ending{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if all := h.dispatch("w"); len(all) != 0 {
		t.Fatal("dispatched within the back-off")
	}
	if due, err := h.NextDue(t.Context(), h.now()); err != nil || due > 2*time.Minute || due <= 0 {
		t.Errorf("next due in %v, error %v", due, err)
	}
	h.exec("update turnkeeper.leases set not_before = clock_timestamp()")
	all := h.dispatch("w")
	if len(all) != 1 || all[0].record.Message.Body != "first" || all[0].record.Turn.Attempt != 2 || all[0].record.Failures != 1 {
		t.Fatalf("dispatched %+v", all)
	}
	all[0].finish(t, "done")
	turns, err := h.TurnsOf(t.Context(), d.record.Message.ID)
	if err != nil || len(turns) != 2 || turns[0].State != turnkeeper.TurnFailed || turns[1].State != turnkeeper.TurnSucceeded {
		t.Errorf("turns %+v, error %v", turns, err)
	}
}

func TestLostDispatches(t *testing.T) {
	h := newHouse(t)
	d := h.turn("x")
	d.append(t, turnkeeper.Entry{Round: round(1)})
	h.lose(d)
	got := h.after(d)
	want := after{Turn: turnkeeper.TurnQueued, Message: turnkeeper.MessageRunning, Log: "lost", LogEnded: true, Job: "cancelled"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	next := h.dispatch("worker-2")[0]
	if next.grant.Token != d.grant.Token+1 || next.record.Turn.Losses != 1 || next.record.Turn.Dispatches != 2 || len(next.record.Rounds) != 1 {
		t.Errorf("dispatched again as %+v", next.record.Turn)
	}
	// It is lost before it has written anything: the log and the views name it,
	// not the worker before it.
	lanes, err := h.Lanes(t.Context(), storage.Page{})
	if err != nil || lanes[0].Lease.WorkerID != "worker-2" {
		t.Errorf("the lane's holder is %q, error %v", lanes[0].Lease.WorkerID, err)
	}
	h.lose(next)
	view, err := h.ViewTurn(t.Context(), d.grant.TurnID)
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
	h := newHouse(t)
	h.enqueue("clerk", "", "x")
	d := h.dispatch("")[0]
	h.lose(d)
	if got := h.after(d); got.Log != "unclaimed" || got.Job != "cancelled" {
		t.Errorf("log %s, job %s", got.Log, got.Job)
	}
	if n := one[int](h, "select losses from turnkeeper.turns"); n != 0 {
		t.Errorf("%d losses", n)
	}
}

func TestCloseOfATurnThatLostItsWorkerTooOften(t *testing.T) {
	h := newHouse(t)
	d := h.turn("x")
	d.append(t, turnkeeper.Entry{
		Round:  round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce),
		Starts: []turnkeeper.CallStart{start(key(1, 1), "n", 1, turnkeeper.EffectOnce)},
		Events: events(turnkeeper.EventTurnStart),
	})
	h.exec("update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp()")
	h.inTick(func(ctx context.Context, tick *storage.Tick) error {
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
		return tick.Close(ctx, lost[0], turnkeeper.Outcome{
			State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopWorkerLost, Reply: "sorry", ErrorClass: "worker_lost",
		}, events(turnkeeper.EventTurnComplete))
	})
	want := after{
		Turn: turnkeeper.TurnDegraded, Stop: turnkeeper.StopWorkerLost, TurnEnded: true, Message: turnkeeper.MessageAnswered, Closed: true,
		Reply: "sorry", Outcome: turnkeeper.TurnDegraded, Log: "lost", LogEnded: true, Job: "cancelled", GrantKept: true, ErrorClass: "worker_lost",
	}
	if diff := cmp.Diff(want, h.after(d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	stream, err := h.Events(t.Context(), d.grant.TurnID, 0, 10)
	if err != nil || len(stream) != 2 || stream[1].Type != turnkeeper.EventTurnComplete {
		t.Errorf("events %+v, error %v", stream, err)
	}
	if err := d.Append(t.Context(), turnkeeper.Entry{Outcome: succeeded("late")}, answered); !errors.Is(err, turnkeeper.ErrFenced) {
		t.Errorf("its worker after all: %v", err)
	}
}

func TestScheduledTurn(t *testing.T) {
	h := newHouse(t)
	h.register("clerk", false, turnkeeper.Schedule{Name: "morning", Cron: "0 6 * * *", TimeZone: "UTC", Conversation: "log", Message: "Wake up."})
	slot := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	for range 2 { // the slot counts once, however often it is decided
		h.inTick(func(ctx context.Context, tick *storage.Tick) error {
			due, err := tick.DueSchedules(ctx, 10)
			if err != nil {
				return err
			}
			d := turnkeeper.SlotDecision{Slot: slot, NextDue: slot.Add(24 * time.Hour)}
			d.Schedule = turnkeeper.DueSchedule{Agent: "clerk", Name: "morning", Conversation: "log", Message: "Wake up."}
			if len(due) > 0 {
				d.Schedule = due[0]
			}
			return tick.Occur(ctx, d)
		})
	}
	all := h.dispatch("w")
	if len(all) != 1 {
		t.Fatalf("%d turns, want 1", len(all))
	}
	m := all[0].record.Message
	if m.Trigger != turnkeeper.TriggerSchedule || m.Schedule != "morning" || !m.Slot.Equal(slot) || m.Conversation != "log" || m.Body != "Wake up." || !m.DueAt.Equal(slot) {
		t.Errorf("the message is %+v", m)
	}
	if all[0].record.Turn.Trigger != turnkeeper.TriggerSchedule {
		t.Errorf("the turn's trigger is %s", all[0].record.Turn.Trigger)
	}
	o := turnkeeper.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, InnerDialogue: "all is well"}
	if err := all[0].Append(t.Context(), turnkeeper.Entry{Outcome: &o}, answered); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReplyTo(t.Context(), m.ID); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("a reply without text: %v", err)
	}
}
