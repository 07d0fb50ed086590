package agentturn

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/survival"
)

// reserve reserves one model call in the budget, of a model that was chosen for a survival level. A *blockedError means
// that the budget does not allow it, and a *levelError that the agent has another level. After any error the call must
// not be made.
func (t *task) reserve(ctx context.Context, request prompt.Request, chosen survival.Level) (Reservation, error) {
	return t.reserveCall(ctx, turnkeeper.Usage{InputTokens: int64(request.Tokens),
		OutputTokens: int64(t.def.OutputTokens()), Estimated: true}, chosen)
}

// reserveCall is reserve for an estimated usage. chosen is empty if the model does not depend on the level. It is safe
// for concurrent use.
func (t *task) reserveCall(ctx context.Context, estimate turnkeeper.Usage, chosen survival.Level) (Reservation, error) {
	if t.cfg.Budget == nil {
		return Reservation{}, nil
	}
	limits, tree := t.def.Budget, t.family.limits()
	who := Spender{
		Turn: t.record.Turn.ID, Agent: t.record.Turn.Agent,
		Limits: SpendLimits{
			TurnTokens: limits.TurnTokens, TurnCalls: limits.TurnCalls,
			DayTokens: limits.DayTokens, DayCalls: limits.DayCalls,
			TreeTokens: tree.Tokens, TreeCalls: tree.Calls,
		}.times(1 + extensions(t.record.Asks)),
	}
	if t.def.Levels != (agentdef.Levels{}) {
		who.Level = chosen
	}
	if tree.Tokens > 0 || tree.Calls > 0 {
		who.Root = cmp.Or(t.record.Lineage.Root, t.record.Turn.ID)
	}
	r, err := t.cfg.Budget.Reserve(ctx, who, estimate)
	if err != nil {
		return Reservation{}, err
	}
	if err := t.noteLevel(who.Level, r.Level); err != nil {
		return Reservation{}, err
	}
	if r.Blocked {
		return Reservation{}, &blockedError{r}
	}
	return r, nil
}

// A levelError is the error of a model call whose model was chosen for another survival level than the agent has.
type levelError struct{ level survival.Level }

func (e *levelError) Error() string { return "the agent's survival level is now " + string(e.level) }

// noteLevel keeps the agent's level for the next choice of a model. It returns a *levelError if the model was chosen
// for another one.
func (t *task) noteLevel(chosen, now survival.Level) error {
	if now == "" {
		return nil
	}
	if before := t.levelNow(); t.level.Swap(now) != now && before != now {
		t.log.Info("the agent's survival level has changed", zap.String("level", string(now)),
			zap.String("before", string(before)), zap.Strings("models", t.modelNames()))
	}
	if chosen != "" && chosen != now {
		return &levelError{now}
	}
	return nil
}

// levelNow returns the agent's survival level at the newest reservation; before the first, when the record was read.
func (t *task) levelNow() survival.Level {
	level, ok := t.level.Load().(survival.Level)
	if !ok {
		return survival.Normal
	}
	return level
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
		t.log.Error("cannot settle spend; the reservation counts as used", zap.Int64("reservation_id", r.ID),
			zap.Error(err))
	}
}

// settleTime is the timeout of one Settle, which outlives the turn's context.
const settleTime = 2 * time.Second
