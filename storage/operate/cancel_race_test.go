package operate_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/journal"
)

// A request to cancel that meets a failed turn, whose message would be retried, cancels the message.
// CancelTurn then reports success.
func TestACancellationThatMeetsAFailedTurnIsToldOfAsOne(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	h.Exec("select turnkeeper.ask_cancel($1, '')", d.Grant.TurnID) // the first half of CancelTurn
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no", Retry: true}
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: &failed}, journal.Ending{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: time.Second}); err != nil {
		t.Fatal(err)
	}
	if m, err := h.Message(t.Context(), d.Record.Message.ID); err != nil || m.State != turnkeeper.MessageCancelled {
		t.Fatalf("the message is %s, error %v", m.State, err)
	}
	if done, err := h.CancelTurn(t.Context(), d.Grant.TurnID, ""); err != nil || !done.Closed {
		t.Errorf("%+v, error %v", done, err)
	}
}
