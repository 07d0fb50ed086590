package storage_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

// It is the message that kills its workers: a failed model call between two
// losses does not make them forgotten.
func TestLossesOfAMessageOutliveAFailedTurn(t *testing.T) {
	h := newHouse(t)
	d := h.turn("x")
	d = h.again(d, "worker-2")
	d = h.again(d, "worker-3")
	if d.record.Turn.Losses != 2 {
		t.Fatalf("%d losses", d.record.Turn.Losses)
	}
	failed := turnkeeper.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no", Retry: true}
	if err := d.Append(t.Context(), turnkeeper.Entry{Outcome: &failed}, storage.Ending{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: time.Second}); err != nil {
		t.Fatal(err)
	}
	h.exec("update turnkeeper.leases set not_before = null")
	all := h.dispatch("worker-4")
	if len(all) != 1 {
		t.Fatalf("%d dispatches", len(all))
	}
	if n := all[0].record.Turn.Losses; n != 2 {
		t.Errorf("the next attempt at the message begins with %d losses, want 2", n)
	}
}
