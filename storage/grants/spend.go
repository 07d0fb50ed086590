package grants

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/survival"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A SpendRequest asks for a reservation in the budgets of a turn and of its agent's day.
// A limit of 0 means no limit.
type SpendRequest struct {
	Turn                                       turnkeeper.TurnID
	Agent                                      string
	Tokens                                     int64
	TurnTokens, TurnCalls, DayTokens, DayCalls int64
	Root                                       turnkeeper.TurnID // of the tree whose budget also applies; 0: none
	TreeTokens, TreeCalls                      int64
	Level                                      survival.Level // for which the model was chosen; empty: any
}

// A SpendResult is the result of a SpendRequest.
type SpendResult struct {
	Reservation int64 // 0: none was made
	// the exhausted budget: "turn", "day" or "tree"; "level": the agent has another level; empty: none
	Blocked    string
	Level      survival.Level
	UsedTokens int64 // of that budget
	UsedCalls  int64
	DayLeft    time.Duration // until the next day's budget applies, by the database's clock
}

// ReserveSpend reserves an estimate in the budgets, if none is exhausted. A reservation
// that is never settled stays counted, because spend only adds up; so does one whose
// answer was lost. While the database is unavailable, ReserveSpend retries until ctx ends.
func (s *Store) ReserveSpend(ctx context.Context, r SpendRequest) (answer SpendResult, err error) {
	err = s.db.Patiently(ctx, func() (err error) {
		answer, err = s.reserveSpend(ctx, r)
		return err
	})
	return answer, err
}

func (s *Store) reserveSpend(ctx context.Context, r SpendRequest) (SpendResult, error) {
	if r.Root != 0 {
		return s.reserveTreeSpend(ctx, r)
	}
	row, err := s.db.Q.ReserveSpend(ctx, dbsqlc.ReserveSpendParams{
		Turn: int64(r.Turn), Agent: r.Agent, Tokens: r.Tokens, TurnTokens: r.TurnTokens, TurnCalls: r.TurnCalls,
		DayTokens: r.DayTokens, DayCalls: r.DayCalls, Level: string(r.Level),
	})
	return SpendResult{
		Reservation: row.Reservation, Blocked: row.Blocked, UsedTokens: row.UsedTokens, UsedCalls: row.UsedCalls,
		Level:   survival.Level(row.Level),
		DayLeft: time.Duration(row.DayLeft * float64(time.Second)),
	}, pg.Translate(err)
}

func (s *Store) reserveTreeSpend(ctx context.Context, r SpendRequest) (SpendResult, error) {
	row, err := s.db.Q.ReserveTreeSpend(ctx, dbsqlc.ReserveTreeSpendParams{
		Root: int64(r.Root), TreeTokens: r.TreeTokens, TreeCalls: r.TreeCalls,
		Turn: int64(r.Turn), Agent: r.Agent, Tokens: r.Tokens, TurnTokens: r.TurnTokens, TurnCalls: r.TurnCalls,
		DayTokens: r.DayTokens, DayCalls: r.DayCalls, Level: string(r.Level),
	})
	return SpendResult{
		Reservation: row.Reservation, Blocked: row.Blocked, UsedTokens: row.UsedTokens, UsedCalls: row.UsedCalls,
		Level:   survival.Level(row.Level),
		DayLeft: time.Duration(row.DayLeft * float64(time.Second)),
	}, pg.Translate(err)
}

// SettleSpend replaces a reservation with the actual use. A second call does nothing.
func (s *Store) SettleSpend(ctx context.Context, reservation, tokens int64) error {
	return pg.Translate(s.db.Q.SettleSpend(ctx, reservation, tokens))
}
