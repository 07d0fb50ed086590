package storage

import (
	"context"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// A SpendRequest asks for room in the budgets of a turn and its agent's day.
// A limit of 0 is none.
type SpendRequest struct {
	Turn                                       turnkeeper.TurnID
	Agent                                      string
	Tokens                                     int64
	TurnTokens, TurnCalls, DayTokens, DayCalls int64
}

// A SpendAnswer says whether there was room.
type SpendAnswer struct {
	Reservation int64  // 0: none was made
	Blocked     string // "turn" or "day"; empty: there was room
	UsedTokens  int64  // of the scope that blocks
	UsedCalls   int64
}

// ReserveSpend takes an estimate out of the budgets, if there is room. What is
// never settled stays taken: spend only ever adds up.
func (s *Store) ReserveSpend(ctx context.Context, r SpendRequest) (SpendAnswer, error) {
	row, err := s.q.ReserveSpend(ctx, dbsqlc.ReserveSpendParams{
		Turn: int64(r.Turn), Agent: r.Agent, Tokens: r.Tokens, TurnTokens: r.TurnTokens, TurnCalls: r.TurnCalls,
		DayTokens: r.DayTokens, DayCalls: r.DayCalls,
	})
	return SpendAnswer{
		Reservation: row.Reservation, Blocked: row.Blocked, UsedTokens: row.UsedTokens, UsedCalls: row.UsedCalls,
	}, translate(err)
}

// SettleSpend replaces a reservation by what was used. A second time does
// nothing.
func (s *Store) SettleSpend(ctx context.Context, reservation, tokens int64) error {
	return translate(s.q.SettleSpend(ctx, reservation, tokens))
}
