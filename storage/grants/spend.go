package grants

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A SpendRequest asks for room in the budgets of a turn and its agent's day.
// A limit of 0 is none.
type SpendRequest struct {
	Turn                                       turnkeeper.TurnID
	Agent                                      string
	Tokens                                     int64
	TurnTokens, TurnCalls, DayTokens, DayCalls int64
	Root                                       turnkeeper.TurnID // of the tree whose budget bounds the turn too; 0: none does
	TreeTokens, TreeCalls                      int64
}

// A SpendAnswer says whether there was room.
type SpendAnswer struct {
	Reservation int64  // 0: none was made
	Blocked     string // "turn", "day" or "tree"; empty: there was room
	UsedTokens  int64  // of the scope that blocks
	UsedCalls   int64
	DayLeft     time.Duration // until the next day's budget is open, by the database's clock
}

// ReserveSpend takes an estimate out of the budgets, if there is room. What is
// never settled stays taken: spend only ever adds up. It waits for a database that is
// away until ctx ends; where an answer was lost, what was reserved stays taken too.
func (s *Store) ReserveSpend(ctx context.Context, r SpendRequest) (answer SpendAnswer, err error) {
	err = pg.Patiently(ctx, func() (err error) {
		answer, err = s.reserveSpend(ctx, r)
		return err
	})
	return answer, err
}

func (s *Store) reserveSpend(ctx context.Context, r SpendRequest) (SpendAnswer, error) {
	if r.Root != 0 {
		return s.reserveTreeSpend(ctx, r)
	}
	row, err := s.db.Q.ReserveSpend(ctx, dbsqlc.ReserveSpendParams{
		Turn: int64(r.Turn), Agent: r.Agent, Tokens: r.Tokens, TurnTokens: r.TurnTokens, TurnCalls: r.TurnCalls,
		DayTokens: r.DayTokens, DayCalls: r.DayCalls,
	})
	return SpendAnswer{
		Reservation: row.Reservation, Blocked: row.Blocked, UsedTokens: row.UsedTokens, UsedCalls: row.UsedCalls,
		DayLeft: time.Duration(row.DayLeft * float64(time.Second)),
	}, pg.Translate(err)
}

func (s *Store) reserveTreeSpend(ctx context.Context, r SpendRequest) (SpendAnswer, error) {
	row, err := s.db.Q.ReserveTreeSpend(ctx, dbsqlc.ReserveTreeSpendParams{
		Root: int64(r.Root), TreeTokens: r.TreeTokens, TreeCalls: r.TreeCalls,
		Turn: int64(r.Turn), Agent: r.Agent, Tokens: r.Tokens, TurnTokens: r.TurnTokens, TurnCalls: r.TurnCalls,
		DayTokens: r.DayTokens, DayCalls: r.DayCalls,
	})
	return SpendAnswer{
		Reservation: row.Reservation, Blocked: row.Blocked, UsedTokens: row.UsedTokens, UsedCalls: row.UsedCalls,
		DayLeft: time.Duration(row.DayLeft * float64(time.Second)),
	}, pg.Translate(err)
}

// SettleSpend replaces a reservation by what was used. A second time does
// nothing.
func (s *Store) SettleSpend(ctx context.Context, reservation, tokens int64) error {
	return pg.Translate(s.db.Q.SettleSpend(ctx, reservation, tokens))
}
