package journal_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

func TestTransactionalCall(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectOnce,
		turnkeeper.EffectOnce)})
	run := func(k turnkeeper.CallKey, state turnkeeper.CallState, also func(ctx context.Context)) error {
		_, err := d.Transact(t.Context(), storagetest.Start(k, k.String(), 1, turnkeeper.EffectOnce), time.Minute,
			func(ctx context.Context) turnlog.CallResult {
				if err := h.WriteNote(ctx, turnkeeper.ConversationKey{Agent: "clerk"}, k.String(), "from the tool",
					nil); err != nil {
					t.Error(err)
				}
				if text, _, found, err := h.ReadNote(ctx, turnkeeper.ConversationKey{Agent: "clerk"},
					k.String()); err != nil || !found || text != "from the tool" {
					t.Errorf("the tool does not see its own note: %q, %v, %v", text, found, err)
				}
				if notes, err := h.ListNotes(ctx, turnkeeper.ConversationKey{Agent: "clerk"}); err != nil ||
					len(notes) == 0 {
					t.Errorf("the tool does not list its own note: %v, %v", notes, err)
				}
				// Other connections do not see it yet.
				if _, _, found, err := h.ReadNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"},
					k.String()); err != nil || found {
					t.Errorf("seen from outside before the commit: %v, %v", found, err)
				}
				if also != nil {
					also(ctx)
				}
				return storagetest.Result(k, k.String(), state, string(state))
			})
		return err
	}
	broken := func(ctx context.Context) {
		tx, _ := storage.TxFrom(ctx)
		if _, err := tx.Exec(ctx, "select 1/0"); err == nil {
			t.Error("1/0 is something")
		}
	}
	for i, c := range []struct {
		state turnkeeper.CallState
		also  func(context.Context)
		kept  bool
	}{{turnkeeper.CallSucceeded, nil, true}, {turnkeeper.CallFailed, nil, false}, {turnkeeper.CallFailed,
		broken, false}} {
		k := storagetest.Key(1, i+1)
		if err := run(k, c.state, c.also); err != nil {
			t.Fatal(err)
		}
		if _, _, found, err := h.ReadNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"},
			k.String()); err != nil || found != c.kept {
			t.Errorf("call %d: note kept %v, want %v (error %v)", i+1, found, c.kept, err)
		}
		if call := h.Call(d.Grant.TurnID, k); call.State != c.state || call.Shown != string(c.state) ||
			call.Starts != 1 {
			t.Errorf("call %d is %s, shows %q", i+1, call.State, call.Shown)
		}
	}
	if err := run(storagetest.Key(1, 1), turnkeeper.CallSucceeded, nil); !errors.Is(err, turnkeeper.ErrJournalMoved) {
		t.Errorf("a call that was run: %v", err)
	}
	if _, ok := storage.TxFrom(t.Context()); ok {
		t.Error("a transaction outside of a tool")
	}
	d.Finish(t, "done")
	if n := storagetest.One[int](h, "select executed_calls from turnkeeper.turns_now"); n != 3 {
		t.Errorf("%d executed calls, want 3", n)
	}
}

func TestTransactionalCallOfALostLeaseLeavesNothing(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	h.Lose(d)
	_, err := d.Transact(t.Context(), storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectOnce),
		time.Minute, func(context.Context) turnlog.CallResult {
			t.Error("the tool ran")
			return turnlog.CallResult{}
		})
	if !errors.Is(err, turnkeeper.ErrFenced) {
		t.Errorf("error %v", err)
	}
}

// While a transactional tool runs, its turn's row is locked. The scheduler skips the row instead of
// waiting, and so cannot reclaim the turn.
func TestSchedulerDoesNotWaitForATransactionalTool(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	_, err := d.Transact(t.Context(), storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectOnce),
		time.Minute, func(context.Context) turnlog.CallResult {
			h.Exec(
				"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp()")
			h.Tick(func(ctx context.Context, tick *grants.Tick) error {
				lost, err := tick.Lost(ctx, 10)
				if len(lost) != 0 {
					t.Errorf("took %v", lost)
				}
				return err
			})
			return storagetest.Result(storagetest.Key(1, 1), "n", turnkeeper.CallSucceeded, "ok")
		})
	if err != nil {
		t.Fatal(err)
	}
	h.Lose(d)
}

func TestNotes(t *testing.T) {
	h := newEnv(t)
	for _, n := range [][2]string{{"b", "first"}, {"a", "äöü"}, {"b", "second"}} {
		if err := h.WriteNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"}, n[0], n[1], nil); err != nil {
			t.Fatal(err)
		}
	}
	if text, _, found, err := h.ReadNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"}, "b"); err != nil ||
		!found || text != "second" {
		t.Errorf("%q, %v, %v", text, found, err)
	}
	if _, _, found, err := h.ReadNote(t.Context(), turnkeeper.ConversationKey{Agent: "desk"},
		"b"); err != nil || found {
		t.Errorf("another agent's note: %v, %v", found, err)
	}
	notes, err := h.ListNotes(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"})
	if err != nil || len(notes) != 2 || notes[0].Name != "a" || notes[0].Chars != 3 || notes[1].Name != "b" {
		t.Errorf("%+v, error %v", notes, err)
	}
}

func TestTransactionalToolThatHidesItsFailureHasFailed(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	k := storagetest.Key(1, 1)
	recorded, err := d.Transact(t.Context(), storagetest.Start(k, "n", 1, turnkeeper.EffectOnce), time.Minute,
		func(ctx context.Context) turnlog.CallResult {
			tx, _ := storage.TxFrom(ctx)
			if err := h.WriteNote(ctx, turnkeeper.ConversationKey{Agent: "clerk"}, "n", "lost", nil); err != nil {
				t.Error(err)
			}
			_, _ = tx.Exec(ctx, "select 1/0")
			return storagetest.Result(k, "n", turnkeeper.CallSucceeded, "all is well")
		})
	if err != nil {
		t.Fatal(err)
	}
	if recorded.State != turnkeeper.CallFailed || !strings.Contains(recorded.Shown, "a statement of the tool failed") {
		t.Errorf("recorded as %s: %s", recorded.State, recorded.Shown)
	}
	if call := h.Call(d.Grant.TurnID, k); call.State != turnkeeper.CallFailed || call.Shown != recorded.Shown {
		t.Errorf("the call is %s, shows %q", call.State, call.Shown)
	}
	if _, _, found, err := h.ReadNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"},
		"n"); err != nil || found {
		t.Errorf("the note was kept: %v, %v", found, err)
	}
	d.Finish(t, "done")
}
