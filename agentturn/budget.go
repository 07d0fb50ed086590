package agentturn

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/survival"
)

// A spending takes the model calls of a turn out of the budget. It is safe for concurrent use.
type spending struct {
	budget Budget  // nil: unlimited
	who    Spender // without a level
	levels bool    // the agent's models depend on its survival level
	roster *roster // hears of the agent's level
	log    *zap.Logger
}

func newSpending(t *task, r *roster) *spending {
	limits, tree := t.def.Budget, t.family().limits()
	s := &spending{
		budget: t.cfg.Budget, levels: t.def.Levels != (agentdef.Levels{}), roster: r, log: t.log,
		who: Spender{
			Turn: t.record.Turn.ID, Agent: t.record.Turn.Agent,
			Limits: SpendLimits{
				TurnTokens: limits.TurnTokens, TurnCalls: limits.TurnCalls,
				DayTokens: limits.DayTokens, DayCalls: limits.DayCalls,
				TreeTokens: tree.Tokens, TreeCalls: tree.Calls,
			}.times(1 + extensions(t.record.Asks)),
		},
	}
	if tree.Tokens > 0 || tree.Calls > 0 {
		s.who.Root = cmp.Or(t.record.Lineage.Root, t.record.Turn.ID)
	}
	return s
}

// reserve reserves one model call in the budget, of a model that was chosen for a survival level; empty if the model
// does not depend on it. A *blockedError means that the budget does not allow the call, and a *levelError that the
// agent has another level. After any error the call must not be made.
func (s *spending) reserve(ctx context.Context, estimate turnkeeper.Usage, chosen survival.Level) (Reservation, error) {
	if s.budget == nil {
		return Reservation{}, nil
	}
	who := s.who
	if s.levels {
		who.Level = chosen
	}
	r, err := s.budget.Reserve(ctx, who, estimate)
	if err != nil {
		return Reservation{}, err
	}
	if err := s.roster.noteLevel(who.Level, r.Level); err != nil {
		return Reservation{}, err
	}
	if r.Blocked {
		return Reservation{}, &blockedError{r}
	}
	return r, nil
}

// settle replaces a reservation by the actual usage. If that fails, the reservation
// counts as used.
func (s *spending) settle(ctx context.Context, r Reservation, used turnkeeper.Usage) {
	if s.budget == nil || r.ID == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer stop()
	if err := s.budget.Settle(ctx, r, used); err != nil {
		s.log.Error("cannot settle spend; the reservation counts as used", zap.Int64("reservation_id", r.ID),
			zap.Error(err))
	}
}

// settleTime is the timeout of one Settle, which outlives the turn's context.
const settleTime = 2 * time.Second
