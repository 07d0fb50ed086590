package storage_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

// A request that comes while its turn fails, to be tried again, cancels the message.
// Whoever asked is told so.
func TestACancellationThatMeetsAFailedTurnIsToldOfAsOne(t *testing.T) {
	h := newHouse(t)
	d := h.turn("x")
	h.exec("select turnkeeper.ask_cancel($1, '')", d.grant.TurnID) // the first half of CancelTurn
	failed := turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no", Retry: true}
	if err := d.Append(t.Context(), turnkeeper.Entry{Outcome: &failed}, storage.Ending{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: time.Second}); err != nil {
		t.Fatal(err)
	}
	if m, err := h.Message(t.Context(), d.record.Message.ID); err != nil || m.State != turnkeeper.MessageCancelled {
		t.Fatalf("the message is %s, error %v", m.State, err)
	}
	if done, err := h.CancelTurn(t.Context(), d.grant.TurnID, ""); err != nil || !done.Closed {
		t.Errorf("%+v, error %v", done, err)
	}
}
