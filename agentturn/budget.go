package agentturn

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
)

// reserve reserves one model call in the budget. A *blockedError means that the budget
// does not allow it. After any error the call must not be made.
func (t *task) reserve(ctx context.Context, request prompt.Request) (Reservation, error) {
	return t.reserveCall(ctx, turnkeeper.Usage{InputTokens: int64(request.Tokens), OutputTokens: int64(t.def.OutputTokens()), Estimated: true})
}

// reserveCall is reserve for an estimated usage. It is safe for concurrent use.
func (t *task) reserveCall(ctx context.Context, estimate turnkeeper.Usage) (Reservation, error) {
	if t.cfg.Budget == nil {
		return Reservation{}, nil
	}
	limits, tree := t.def.Budget, t.treeLimits()
	who := Spender{
		Turn: t.record.Turn.ID, Agent: t.record.Turn.Agent,
		Limits: SpendLimits{
			TurnTokens: limits.TurnTokens, TurnCalls: limits.TurnCalls,
			DayTokens: limits.DayTokens, DayCalls: limits.DayCalls,
			TreeTokens: tree.Tokens, TreeCalls: tree.Calls,
		}.times(1 + extensions(t.record.Asks)),
	}
	if tree.Tokens > 0 || tree.Calls > 0 {
		who.Root = cmp.Or(t.record.Lineage.Root, t.record.Turn.ID)
	}
	r, err := t.cfg.Budget.Reserve(ctx, who, estimate)
	if err != nil {
		return Reservation{}, err
	}
	if r.Blocked {
		return Reservation{}, &blockedError{r}
	}
	return r, nil
}

// settleSpend replaces a reservation by the actual usage. If that fails, the reservation
// counts as used.
func (t *task) settleSpend(ctx context.Context, r Reservation, used turnkeeper.Usage) {
	if t.cfg.Budget == nil || r.ID == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer stop()
	if err := t.cfg.Budget.Settle(ctx, r, used); err != nil {
		t.log.Warn("cannot settle spend; the reservation counts as used", zap.Error(err))
	}
}

// settleTime is the timeout of one Settle, which outlives the turn's context.
const settleTime = 2 * time.Second
