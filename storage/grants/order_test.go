package grants_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// partly returns the conversations that a tick with a partial look would grant, in order.
func (h *env) partly() string {
	h.T.Helper()
	var names []string
	err := h.InTick(h.T.Context(), func(tick *grants.Tick) error {
		sit, _, err := tick.Snapshot(h.T.Context(), false)
		if err != nil {
			return err
		}
		if sit.Held {
			if _, err := tick.MoveHeld(h.T.Context()); err != nil {
				return err
			}
		}
		turns, err := tick.ReadyTurns(h.T.Context(), 100, nil)
		if err != nil {
			return err
		}
		messages, err := tick.ReadyMessages(h.T.Context(), 100, nil)
		for _, c := range append(turns, messages...) {
			names = append(names, c.Conversation)
		}
		return err
	})
	if err != nil {
		h.T.Fatal(err)
	}
	return strings.Join(names, " ")
}

// settle makes full looks until partial ones leave out what is older: they begin before the oldest transaction on the
// server.
func (h *env) settle() {
	h.T.Helper()
	for found := true; found; {
		look(h.T, h, true)
		h.Exec(
			"insert into turnkeeper.messages (agent, conversation, lane, body) values ('desk', 'probe', 'desk/probe', 'probe')")
		h.Exec("update turnkeeper.messages set due_at = due_at - interval '1 day' where body = 'probe'")
		found = strings.Contains(h.partly(), "probe")
		h.Exec("delete from turnkeeper.messages where body = 'probe'")
	}
}

// age makes all messages and grants older, so that a partial look would leave out the waiting ones if it had not seen
// them before.
func (h *env) age() {
	h.Exec(
		"update turnkeeper.messages set due_at = due_at - interval '1 minute', accepted_at = accepted_at - interval '1 minute'")
}

func failed(pause time.Duration) (turnlog.Entry, turnlog.Consequence) {
	return turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed,
			StopReason: turnkeeper.StopInferenceError, Retry: true, Backoff: pause}},
		turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: pause}
}

func (h *env) fail(d *storagetest.Dispatch, pause time.Duration) {
	h.T.Helper()
	entry, ending := failed(pause)
	if err := d.Append(h.T.Context(), entry, ending); err != nil {
		h.T.Fatal(err)
	}
}

// ask lets the turn of a dispatch wait for a person.
func (h *env) ask(d *storagetest.Dispatch, hold bool) {
	h.T.Helper()
	key := storagetest.Key(1, 1)
	d.Write(h.T, turnlog.Entry{
		Round: storagetest.Round(1, turnkeeper.EffectOnce), Gates: []turnkeeper.CallKey{key}, Asks: []asks.Question{{
			Call: key, Kind: asks.KindApprove, N: 1, Tool: "tool", Arguments: "{}", Terms: asks.Terms{Hold: hold,
				Timeout: time.Hour},
		}},
		Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
	})
	d.Wait(h.T)
}

func (h *env) approve() {
	h.T.Helper()
	id := storagetest.One[asks.ID](h, "select id from turnkeeper.asks where state = 'open'")
	if _, err := h.AnswerAsk(h.T.Context(), id, asks.Answer{Decision: asks.Approved, By: "ann",
		Channel: "test"}); err != nil {
		h.T.Fatal(err)
	}
}

// TestNothingIsOvertaken has, for each way in which a message or a turn begins to wait later than its rank, an older
// one that does so and a younger one in the same lane, clerk. A tick whose look is partial grants the older one, or
// nothing.
func TestNothingIsOvertaken(t *testing.T) {
	for name, c := range map[string]struct {
		before func(h *env) (then func()) // what happens before the looks, and after them
		want   string                     // the conversations that are granted
	}{
		"a failed message waits again": {func(h *env) func() {
			h.Submit("clerk", "older", "x")
			d := h.Dispatch("w")[0]
			h.Submit("clerk", "younger", "x")
			return func() { h.fail(d, 0) }
		}, "older"},
		"a failed message backs off": {func(h *env) func() {
			h.Submit("clerk", "older", "x")
			d := h.Dispatch("w")[0]
			h.Submit("clerk", "younger", "x")
			return func() { h.fail(d, time.Minute) }
		}, ""},
		"a failed message backed off": {func(h *env) func() {
			h.Submit("clerk", "older", "x")
			d := h.Dispatch("w")[0]
			h.Submit("clerk", "younger", "x")
			return func() {
				h.fail(d, time.Minute)
				h.Exec("update turnkeeper.leases set not_before = now() - interval '1 s'")
			}
		}, "older"},
		"a turn is handed back": {func(h *env) func() {
			h.Submit("clerk", "older", "x")
			d := h.Dispatch("w")[0]
			h.Submit("clerk", "younger", "x")
			return func() { h.Lose(d) }
		}, "older"},
		"an ask is answered": {func(h *env) func() {
			h.Submit("clerk", "older", "x")
			h.ask(h.Dispatch("w")[0], false)
			h.Submit("clerk", "younger", "x")
			return h.approve
		}, "older"},
		"an ask of the younger one is answered": {func(h *env) func() {
			h.Submit("clerk", "older", "x")
			h.Exec("update turnkeeper.messages set due_at = now() + interval '1 h' where conversation = 'older'")
			h.Submit("clerk", "younger", "x")
			h.ask(h.Dispatch("w")[0], false)
			h.Exec("update turnkeeper.messages set due_at = now() - interval '1 h' where conversation = 'older'")
			return h.approve
		}, "older"},
		"held messages return with their turn": {func(h *env) func() {
			h.Submit("clerk", "older", "asks")
			d := h.Dispatch("w")[0]
			h.Submit("clerk", "older", "held")
			h.ask(d, true)
			h.Submit("clerk", "younger", "x")
			return func() {
				turn := storagetest.One[turnkeeper.TurnID](h, "select turn_id from turnkeeper.asks")
				if _, err := h.CancelTurn(h.T.Context(), turn, ""); err != nil {
					h.T.Fatal(err)
				}
			}
		}, "older"},
		"a message's lane merges with another": {func(h *env) func() {
			h.Register("mover", true)
			for _, name := range []string{"older", "younger"} {
				h.Submit("mover", name, "x")
			}
			h.Exec("update turnkeeper.messages set lane = 'mover' where conversation = 'younger'")
			// not visible to looks until it moves
			h.Exec("update turnkeeper.messages set held = true where conversation = 'older'")
			return func() {
				h.Register("mover", false)
				h.Tick(func(ctx context.Context, tick *grants.Tick) error { return tick.MoveLanes(ctx) })
				h.Exec("update turnkeeper.messages set held = false")
			}
		}, "older"},
		"a turn fails in a lane of before": {func(h *env) func() {
			h.Register("mover", false)
			h.Submit("mover", "c", "older")
			d := h.Dispatch("w")[0]
			h.Submit("mover", "c", "younger")
			return func() {
				h.Register("mover", true)
				h.Tick(func(ctx context.Context, tick *grants.Tick) error { return tick.MoveLanes(ctx) })
				h.fail(d, 0)
				if lane := storagetest.One[string](h,
					"select lane from turnkeeper.messages where body = 'older'"); lane != "mover/c" {
					h.T.Errorf("the older message waits in lane %s", lane) // where the younger one does not see it
				}
			}
		}, "c"},
		"a priority comes in": {func(h *env) func() {
			h.Submit("clerk", "younger", "x")
			return func() {
				if _, err := h.Enqueue(h.T.Context(), turnkeeper.Submission{Agent: "clerk", Conversation: "older",
					Body: "x", Priority: 1000}); err != nil {
					h.T.Fatal(err)
				}
			}
		}, "older"},
		"a message that is not due delays nobody": {func(h *env) func() {
			return func() {
				_, err := h.Enqueue(h.T.Context(), turnkeeper.Submission{
					Agent: "clerk", Conversation: "not due", Body: "x", Priority: 1000,
					DueAt: h.Time().Add(time.Minute),
				})
				if err != nil {
					h.T.Fatal(err)
				}
				h.Submit("clerk", "younger", "x")
			}
		}, "younger"},
		"a missed slot": {func(h *env) func() {
			h.Submit("clerk", "younger", "x")
			return func() {
				h.Exec(
					`insert into turnkeeper.messages (agent, conversation, lane, body, trigger, schedule, slot, due_at)
					values ('clerk', 'older', 'clerk', 'x', 'schedule', 's', now() - interval '1 h', date_trunc('second', now() - interval '1 h'))`)
			}
		}, "older"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			then := c.before(h)
			h.age()
			h.settle()
			then()
			if got := h.partly(); got != c.want {
				t.Errorf("granted are %q, want %q", got, c.want)
			}
			broken, err := h.Check(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range broken {
				if len(p.Broken) > 0 && strings.Contains(p.Text, "ahead of it") {
					t.Errorf("%s: %v", p.Text, p.Broken)
				}
			}
		})
	}
}

// TestAMessageOfALongTransactionKeepsItsPlace commits a message a minute after it was accepted. Partial looks see it at
// once, and it goes before a younger message of its lane.
func TestAMessageOfALongTransactionKeepsItsPlace(t *testing.T) {
	h := newEnv(t)
	h.settle()
	h.AgeLooks(time.Minute)
	tx, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `with m as (select turnkeeper.enqueue('clerk', 'x', 'older') as id)
		select id from m`)
	if err == nil {
		_, err = tx.Exec(t.Context(),
			"update turnkeeper.messages set due_at = due_at - interval '1 minute', accepted_at = accepted_at - interval '1 minute'")
	}
	if err != nil {
		t.Fatal(err)
	}
	look(t, h, true)
	h.Submit("clerk", "younger", "x")
	if got := h.partly(); got != "younger" {
		t.Errorf("while the transaction is open: granted are %q", got)
	}
	look(t, h, true)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.partly(); got != "older" {
		t.Errorf("after its commit: granted are %q", got)
	}
}

// TestALaneThatFailedCountsFromItsNextTry has lanes whose heads failed and may be tried again, and a younger message in
// another lane.
func TestALaneThatFailedCountsFromItsNextTry(t *testing.T) {
	h := newEnv(t)
	for _, name := range []string{"a", "b", "c"} {
		h.Submit("desk", name, "x")
	}
	h.age()
	for _, d := range h.Dispatch("w") {
		h.fail(d, 10*time.Second)
	}
	h.Exec("update turnkeeper.leases set not_before = now()")
	h.Submit("desk", "healthy", "x")
	if got := h.partly(); got != "healthy a b c" {
		t.Errorf("granted are %q, want the healthy lane first", got)
	}
}

// TestMessagesBehindThoseOfAHeldAgent has a message behind hundreds of an agent whose model is down, in a lane each. A
// tick finds it although it does not go from lane to lane.
func TestMessagesBehindThoseOfAHeldAgent(t *testing.T) {
	h := newEnv(t)
	h.Exec("update turnkeeper.agents set give_up_after = null")
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body)
		select 'desk', 'c' || i, 'desk/c' || i, 'x' from generate_series(1, 500) i`)
	h.age()
	h.Submit("clerk", "healthy", "x")
	h.PauseAfterAnyScan()
	for range 3 { // a scan may be made once
		h.Tick(func(ctx context.Context, tick *grants.Tick) error {
			ready, err := tick.ReadyMessages(ctx, 10, []string{"desk"})
			if len(ready) != 1 || ready[0].Conversation != "healthy" {
				t.Errorf("ready are %+v", ready)
			}
			return err
		})
	}
}
