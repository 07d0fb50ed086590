package operate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// A request to cancel that meets a failed turn, whose message would be retried, cancels the message.
// CancelTurn then reports success.
func TestACancellationThatMeetsAFailedTurnIsToldOfAsOne(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	h.Exec("select turnkeeper.ask_end($1, 'cancel', '')", d.Grant.TurnID) // the first half of CancelTurn
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "no", Retry: true}
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: &failed},
		turnlog.Consequence{Message: turnkeeper.MessageWaiting,
			Log: "finished", LaneBackoff: time.Second}); err != nil {
		t.Fatal(err)
	}
	if m, err := h.Message(t.Context(), d.Record.Message.ID); err != nil || m.State != turnkeeper.MessageCancelled {
		t.Fatalf("the message is %s, error %v", m.State, err)
	}
	if done, err := h.CancelTurn(t.Context(), d.Grant.TurnID, ""); err != nil || !done.Closed {
		t.Errorf("%+v, error %v", done, err)
	}
}

// A request to cancel that comes while the end of a dispatch waits for its last lock counts: who requests it does not
// wait long for the turn's row, and leaves it to that end.
func TestACancellationMeetsAnEndThatWaitsForALock(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	ask := func() { h.Exec("select turnkeeper.ask_end($1, 'cancel', '')", d.Grant.TurnID) }
	end := func(ctx context.Context, _ *storagetest.DB) error {
		failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
			Error: "no", Retry: true}
		return d.Append(ctx, turnlog.Entry{Outcome: &failed}, turnlog.Consequence{Message: turnkeeper.MessageWaiting,
			Log: "finished", LaneBackoff: time.Second})
	}
	if !h.WaitsBehind(ask, end, "select from turnkeeper.leases where turn_id = $1 for update", d.Grant.TurnID) {
		t.Fatal("it did not wait")
	}
	if m, err := h.Message(t.Context(), d.Record.Message.ID); err != nil || m.State != turnkeeper.MessageCancelled {
		t.Errorf("the message is %s, error %v", m.State, err)
	}
}

// A cancellation that waits for the row of a waiting turn, as while somebody answers its ask in a long transaction,
// keeps nobody from the scheduler's lock, without which nothing is granted.
func TestACancellationWaitsForARowWithoutTheSchedulersLock(t *testing.T) {
	h := newEnv(t)
	d := h.Waiting("x")
	free := func() {
		if !storagetest.One[bool](h.DB, "select turnkeeper.try_scheduler_lock()") {
			t.Error("it holds the scheduler's lock")
		}
	}
	cancel := func(ctx context.Context, db *storagetest.DB) error {
		done, err := db.CancelTurn(ctx, d.Grant.TurnID, "enough")
		if err == nil && !done.Closed {
			err = errors.New("the turn is not closed")
		}
		return err
	}
	if !h.WaitsBehind(free, cancel, "select from turnkeeper.turns where id = $1 for update", d.Grant.TurnID) {
		t.Error("it did not wait")
	}
}
