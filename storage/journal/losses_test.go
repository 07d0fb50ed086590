package journal_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// Losses count per message, because the message may be what kills the workers. A failed model call
// between two losses does not reset the count.
func TestLossesOfAMessageOutliveAFailedTurn(t *testing.T) {
	h := newEnv(t)
	other := h.TurnOf("desk", "worker-1") // has no losses, and must not change
	d := h.Turn("x")
	d = h.Again(d, "worker-2")
	d = h.Again(d, "worker-3")
	for losses := 2; losses <= 3; losses++ {
		if n := d.Record.Turn.Losses; n != losses {
			t.Fatalf("%d losses, want %d", n, losses)
		}
		failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
			Error: "no", Retry: true}
		if err := d.Append(t.Context(), turnlog.Entry{Outcome: &failed},
			turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished",
				LaneBackoff: time.Second}); err != nil {
			t.Fatal(err)
		}
		h.Exec("update turnkeeper.leases set not_before = null")
		all := h.Dispatch("worker-4")
		if len(all) != 1 {
			t.Fatalf("%d dispatches", len(all))
		}
		if n := all[0].Record.Turn.Losses; n != losses {
			t.Errorf("the next attempt at the message begins with %d losses, want %d", n, losses)
		}
		d = h.Again(all[0], "worker-5")
	}
	if n := storagetest.One[int](h, "select losses from turnkeeper.turns where id = $1", other.Grant.TurnID); n != 0 {
		t.Errorf("another message has %d losses", n)
	}
}
