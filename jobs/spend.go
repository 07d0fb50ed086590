package jobs

import (
	"context"
	"fmt"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/storage/grants"
)

// A Spend keeps the budgets of turns in the database: tokens and calls per turn, per day
// (UTC) and per tree of sub-agents.
type Spend struct {
	Grants *grants.Store
}

var _ agentturn.Budget = (*Spend)(nil)

// Reserve reserves the estimate in the budgets, if none is exhausted.
func (s *Spend) Reserve(ctx context.Context, who agentturn.Spender,
	estimate turnkeeper.Usage) (agentturn.Reservation, error) {
	if who.Limits == (agentturn.SpendLimits{}) && who.Level == "" {
		return agentturn.Reservation{}, nil
	}
	answer, err := s.Grants.ReserveSpend(ctx, grants.SpendRequest{
		Turn: who.Turn, Agent: who.Agent, Tokens: estimate.Total(),
		TurnTokens: who.Limits.TurnTokens, TurnCalls: who.Limits.TurnCalls,
		DayTokens: who.Limits.DayTokens, DayCalls: who.Limits.DayCalls,
		Root: who.Root, TreeTokens: who.Limits.TreeTokens, TreeCalls: who.Limits.TreeCalls, Level: who.Level,
	})
	if err != nil {
		return agentturn.Reservation{}, err
	}
	if answer.Blocked == "" || answer.Blocked == scopeLevel {
		return agentturn.Reservation{ID: answer.Reservation, Level: answer.Level}, nil
	}
	return agentturn.Reservation{
		Level: answer.Level, Blocked: true, Scope: answer.Blocked, Retry: answer.DayLeft,
		Never:  answer.Blocked == scopeDay && who.Limits.DayTokens > 0 && estimate.Total() > who.Limits.DayTokens,
		Reason: blockedBy(who.Limits, answer, estimate.Total()),
	}, nil
}

// blockedBy describes the budget that is exhausted.
func blockedBy(limits agentturn.SpendLimits, answer grants.SpendResult, estimate int64) string {
	whose, per, calls, tokens := "turn", "", limits.TurnCalls, limits.TurnTokens
	switch answer.Blocked {
	case scopeDay:
		whose, per, calls, tokens = "agent", " a day", limits.DayCalls, limits.DayTokens
	case scopeTree:
		whose, per = "tree", " for all its agents"
		calls, tokens = limits.TreeCalls, limits.TreeTokens
	}
	if calls > 0 && answer.UsedCalls+1 > calls {
		return fmt.Sprintf("the %s's budget of %s%s is used up", whose, count(calls, "model call"), per)
	}
	if answer.UsedTokens >= tokens {
		return fmt.Sprintf("the %s's budget of %s%s is used up", whose, count(tokens, "token"), per)
	}
	return fmt.Sprintf("the %s's budget of %s%s has no room for another model call: %d are taken, and it may take %d",
		whose, count(tokens, "token"), per, answer.UsedTokens, estimate)
}

// The names of budgets in grants.SpendResult.
const (
	scopeDay  = "day"
	scopeTree = "tree"

	scopeLevel = "level" // no budget: the agent has another level
)

func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Settle replaces a reservation with the actual use.
func (s *Spend) Settle(ctx context.Context, r agentturn.Reservation, used turnkeeper.Usage) error {
	if r.ID == 0 {
		return nil
	}
	return s.Grants.SettleSpend(ctx, r.ID, used.Total())
}
