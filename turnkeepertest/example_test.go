package turnkeepertest_test

import (
	"context"
	"fmt"
	"testing"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/turnkeepertest"
)

// A reporter replaces a test's *testing.T, because an example has none. Only a *testing.T
// has fake time, so the examples set RealTime.
type reporter struct{ testing.TB }

func (reporter) Helper()                           {}
func (reporter) Errorf(format string, args ...any) { fmt.Printf("error: "+format+"\n", args...) }
func (reporter) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (reporter) Logf(string, ...any)               {}

var t reporter

// A payment is the argument of the tool under test.
type payment struct {
	To    string `json:"to"`
	Cents int    `json:"cents"`
}

// payTool pays through a bank that honours idempotency keys.
func payTool(bank *turnkeepertest.Ledger) tools.Tool {
	return tools.New(tools.Spec{Name: "pay", Description: "Pays somebody.", Effect: turnkeeper.EffectKeyed},
		func(ctx context.Context, call tools.Call, p payment) (tools.Result, error) {
			bank.Do(ctx, call.IdempotencyKey, "payment to "+p.To)
			return tools.Result{Text: fmt.Sprintf("paid %d cents to %s", p.Cents, p.To)}, nil
		})
}

const payAgent = `---
tools: [pay]
---
You pay bills.
`

// Example runs a scenario without a fault, and prints what the model is shown and
// answers.
func Example() {
	bank := &turnkeepertest.Ledger{}
	result := turnkeepertest.Run(t, turnkeepertest.Scenario{
		Agent: payAgent,
		Tools: []tools.Tool{payTool(bank)},
		Talk: []turnkeepertest.Exchange{{Say: "Pay Ann 5 euros.", Model: []turnkeepertest.Step{
			turnkeepertest.Call("pay", payment{To: "Ann", Cents: 500}),
			turnkeepertest.Text("Ann has her money."),
		}}},
		RealTime: true,
	})
	fmt.Println("shown:", result.Calls("pay")[0].Shown)
	fmt.Println("reply:", result.Reply())
	fmt.Println("payments:", bank.Count("payment to Ann"))
	// Output:
	// shown: paid 500 cents to Ann
	// reply: Ann has her money.
	// payments: 1
}

// The worker dies after the payment was made and before its result is recorded. Another
// worker pays again with the same key, and the bank ignores the repeat.
func ExampleCrashAt() {
	bank := &turnkeepertest.Ledger{}
	result := turnkeepertest.Run(t, turnkeepertest.Scenario{
		Agent: payAgent,
		Tools: []tools.Tool{payTool(bank)},
		Talk: []turnkeepertest.Exchange{{Say: "Pay Ann 5 euros.", Model: []turnkeepertest.Step{
			turnkeepertest.Call("pay", payment{To: "Ann", Cents: 500}),
			turnkeepertest.Text("Ann has her money."),
		}}},
		RealTime: true,
	}, turnkeepertest.CrashAt(turnkeepertest.PointEffectAfter, 1))
	fmt.Println("workers:", result.Turns[0].Dispatches)
	fmt.Println("starts:", result.Calls("pay")[0].Starts)
	fmt.Println("payments:", bank.Count("payment to Ann"))
	fmt.Println(result.Replies[0].Outcome, "reply:", result.Reply())
	// Output:
	// workers: 2
	// starts: 2
	// payments: 1
	// succeeded reply: Ann has her money.
}

// A tool that declares that it only reads, but has an effect, is reported.
func ExampleRun_defect() {
	bank := &turnkeepertest.Ledger{}
	pay := tools.Func(tools.Spec{Name: "pay", Description: "Pays somebody.", Effect: turnkeeper.EffectNone},
		func(ctx context.Context, p payment) (string, error) {
			bank.Do(ctx, "", "payment to "+p.To)
			return "paid", nil
		})
	turnkeepertest.Run(t, turnkeepertest.Scenario{
		Tools: []tools.Tool{pay}, // without Agent, the agent has all tools
		Talk: []turnkeepertest.Exchange{{Say: "Pay Ann 5 euros.", Model: []turnkeepertest.Step{
			turnkeepertest.Call("pay", `{"to": "Ann", "cents": 500}`),
			turnkeepertest.Text("Ann has her money."),
		}}},
		RealTime: true,
	})
	// Output:
	// error: tool pay (none), call round-1-tool-1 of turn 1: it had the effect "payment to Ann"; a tool that only reads has none, and may be run again at any time
}

// TestPay is the test to write for your own tool: it crashes the worker everywhere.
func TestPay(t *testing.T) {
	turnkeepertest.CrashEverywhere(t, func(*testing.T) turnkeepertest.Scenario {
		bank := &turnkeepertest.Ledger{}
		return turnkeepertest.Scenario{
			Agent: payAgent,
			Tools: []tools.Tool{payTool(bank)},
			Talk: []turnkeepertest.Exchange{{Say: "Pay Ann 5 euros.", Model: []turnkeepertest.Step{
				turnkeepertest.Call("pay", payment{To: "Ann", Cents: 500}), turnkeepertest.Text("Ann has her money."),
			}}},
			Check: func(t testing.TB, r *turnkeepertest.Result) {
				if n := bank.Count("payment to Ann"); n != 1 {
					t.Errorf("Ann was paid %d times", n)
				}
			},
		}
	})
}
