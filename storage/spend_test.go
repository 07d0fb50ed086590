package storage_test

import (
	"sync"
	"testing"

	"turnkeeper"
	"turnkeeper/storage"
)

func (h *house) spent(scope string) (tokens, calls int64) {
	h.t.Helper()
	return one[int64](h, "select coalesce(sum(tokens), 0)::bigint from turnkeeper.spend where scope = $1", scope),
		one[int64](h, "select coalesce(sum(calls), 0)::bigint from turnkeeper.spend where scope = $1", scope)
}

func TestConcurrentReservationsNeverExceedTheLimit(t *testing.T) {
	cases := map[string]struct {
		request      storage.SpendRequest
		manyTurns    bool
		scope, block string
		granted      int
	}{
		"tokens of a day":  {storage.SpendRequest{Tokens: 30, DayTokens: 1000}, true, "agent:a", "day", 33},
		"calls of a day":   {storage.SpendRequest{Tokens: 30, DayCalls: 20}, true, "agent:a", "day", 20},
		"tokens of a turn": {storage.SpendRequest{Tokens: 30, TurnTokens: 1000}, false, "turn:1", "turn", 33},
		"calls of a turn":  {storage.SpendRequest{Tokens: 30, TurnCalls: 20}, false, "turn:1", "turn", 20},
	}
	h := newHouse(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h.exec("truncate turnkeeper.spend, turnkeeper.spend_reservations")
			var mu sync.Mutex
			granted := 0
			var group sync.WaitGroup
			for i := range 60 {
				group.Go(func() {
					r := c.request
					r.Agent, r.Turn = "a", 1
					if c.manyTurns {
						r.Turn = turnkeeper.TurnID(i + 1)
					}
					answer, err := h.ReserveSpend(t.Context(), r)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					switch {
					case answer.Blocked == "" && answer.Reservation > 0:
						granted++
					case answer.Blocked != c.block || answer.Reservation != 0:
						t.Errorf("answer %+v", answer)
					}
				})
			}
			group.Wait()
			tokens, calls := h.spent(c.scope)
			if granted != c.granted || tokens != int64(granted)*30 || calls != int64(granted) {
				t.Errorf("%d reservations of %d; %d tokens and %d calls on record", granted, c.granted, tokens, calls)
			}
		})
	}
}

func TestSettledSpend(t *testing.T) {
	h := newHouse(t)
	reserve := func(tokens int64) int64 {
		t.Helper()
		answer, err := h.ReserveSpend(t.Context(), storage.SpendRequest{Turn: 1, Agent: "a", Tokens: tokens, TurnTokens: 1000})
		if err != nil || answer.Blocked != "" {
			t.Fatalf("%+v, error %v", answer, err)
		}
		return answer.Reservation
	}
	cheap, dear := reserve(400), reserve(100)
	for range 2 { // the second time does nothing
		if err := h.SettleSpend(t.Context(), cheap, 50); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.SettleSpend(t.Context(), dear, 800); err != nil {
		t.Fatal(err)
	}
	if tokens, calls := h.spent("turn:1"); tokens != 850 || calls != 2 {
		t.Errorf("the turn has spent %d tokens in %d calls, want 850 in 2", tokens, calls)
	}
	if tokens, _ := h.spent("agent:a"); tokens != 850 {
		t.Errorf("the agent has spent %d tokens", tokens)
	}
	answer, err := h.ReserveSpend(t.Context(), storage.SpendRequest{Turn: 1, Agent: "a", Tokens: 200, TurnTokens: 1000})
	if err != nil || answer.Blocked != "turn" || answer.UsedTokens != 850 || answer.UsedCalls != 2 {
		t.Errorf("%+v, error %v", answer, err)
	}
	if tokens, _ := h.spent("agent:a"); tokens != 850 {
		t.Errorf("a blocked reservation took from the agent's day: %d", tokens)
	}
	if err := h.SettleSpend(t.Context(), 9999, 1); err != nil {
		t.Errorf("an unknown reservation: %v", err)
	}
}

// One turn's calls may settle while others of it reserve: no order of the two
// may end in a deadlock.
func TestReserveAndSettleBesideEachOther(t *testing.T) {
	h := newHouse(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 25 {
				answer, err := h.ReserveSpend(t.Context(), storage.SpendRequest{Turn: 1, Agent: "a", Tokens: 10})
				if err == nil {
					err = h.SettleSpend(t.Context(), answer.Reservation, 7)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if tokens, calls := h.spent("turn:1"); tokens != 8*25*7 || calls != 8*25 {
		t.Errorf("%d tokens in %d calls", tokens, calls)
	}
}
