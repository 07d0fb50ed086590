package turnkeepertest_test

import (
	"context"
	"errors"
	"testing"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/turnkeepertest"
)

// A shop is a fake of the system that tools act on.
type shop struct{ turnkeepertest.Ledger }

type item struct {
	Item string `json:"item"`
}

// order returns a tool of the given effect that passes on the idempotency key that key
// returns for the call.
func (s *shop) order(effect turnkeeper.Effect, key func(tools.Call) string) tools.Tool {
	return tools.New(tools.Spec{Name: "order", Description: "Orders an item.", Effect: effect},
		func(ctx context.Context, call tools.Call, args item) (tools.Result, error) {
			s.Do(ctx, key(call), "order of "+args.Item)
			return tools.Result{Text: "ordered " + args.Item}, nil
		})
}

func passedOn(call tools.Call) string { return call.IdempotencyKey }
func forgotten(tools.Call) string     { return "" }

// look returns a tool that only reads.
func (s *shop) look() tools.Tool {
	return tools.Func(tools.Spec{Name: "look", Description: "Looks an item up.", Effect: turnkeeper.EffectNone},
		func(_ context.Context, args item) (string, error) {
			if args.Item == "" {
				return "", errors.New("the item has no name")
			}
			return args.Item + " is there", nil
		})
}

// A reconciled tool can look up whether a call happened.
type reconciled struct {
	tools.Tool
	shop *shop
}

func (r reconciled) Reconcile(_ context.Context, call tools.Call) (tools.Result, bool, error) {
	return tools.Result{Text: "it was ordered"}, r.shop.Has(call.IdempotencyKey), nil
}

// ordering returns a scenario with one order, after a look.
func ordering(tool tools.Tool, s *shop) turnkeepertest.Scenario {
	return turnkeepertest.Scenario{
		Tools: []tools.Tool{s.look(), tool},
		Talk: []turnkeepertest.Exchange{{Say: "order tea", Model: []turnkeepertest.Step{
			turnkeepertest.Calls(turnkeepertest.ToolCall("look", item{"tea"}), turnkeepertest.ToolCall("order",
				item{"tea"})),
			turnkeepertest.Text("Done."),
		}}},
	}
}

// everywhere holds the three ways in which a worker fails.
var everywhere = []struct {
	name string
	run  func(*testing.T, func(*testing.T) turnkeepertest.Scenario)
}{
	{"crash", turnkeepertest.CrashEverywhere},
	{"pause", turnkeepertest.PauseEverywhere},
	{"lost answers", turnkeepertest.LoseAnswersEverywhere},
}
