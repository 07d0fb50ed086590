package grants_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
)

// A retry does not reset the spend: the second attempt at a message continues with the rest of the
// first attempt's budget.
func TestSpendOfAMessageOutlivesAFailedTurn(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	for range 2 {
		if a, err := h.ReserveSpend(t.Context(), grants.SpendRequest{Turn: d.Grant.TurnID, Agent: "clerk", Tokens: 10,
			TurnCalls: 2}); err != nil || a.Blocked != "" {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "no", Retry: true}
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: &failed},
		turnlog.Consequence{Message: turnkeeper.MessageWaiting,
			Log: "finished"}); err != nil {
		t.Fatal(err)
	}
	h.Exec("update turnkeeper.leases set not_before = null")
	next := h.Dispatch("worker-2")[0]
	a, err := h.ReserveSpend(t.Context(), grants.SpendRequest{Turn: next.Grant.TurnID, Agent: "clerk", Tokens: 10,
		TurnCalls: 2})
	if err != nil || a.Blocked != "turn" {
		t.Errorf("a third call of a budget of two is made by attempt %d: %+v, %v", next.Record.Turn.Attempt, a, err)
	}
}
