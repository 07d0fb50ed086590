package grants_test

import (
	"testing"

	"turnkeeper/storage/grants"
)

// A short outage of the database does not block a turn's budget. The reservation is retried like
// every other write.
func TestReservationWaitsForTheDatabase(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	admin := h.Admin()
	admin(
		"select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	a, err := h.ReserveSpend(t.Context(), grants.SpendRequest{Turn: d.Grant.TurnID, Agent: "clerk", Tokens: 10,
		TurnCalls: 2})
	if err != nil {
		t.Errorf("%+v, %v", a, err)
	}
}
