package turnctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

func exampleAsks() []operate.Ask {
	key := turnkeeper.CallKey{Round: 1, Ordinal: 2}
	open := operate.Ask{
		Ask: asks.Ask{
			Question: asks.Question{
				Call: key, Kind: asks.KindApprove, N: 1, Tool: "pay_invoice",
				Arguments: `{"to":"acme","amount":900,"note":"\u001b[31m"}`,
				Rule:      `args.amount > 500 ? ask("the amount is above 500") : allow`,
				Reason:    "the amount is above 500",
				Schema:    `{"type":"object"}`,
				Terms:     asks.Terms{Audience: []string{"ann", "bob"}, Hold: true},
			},
			ID: 7, Turn: 41, State: asks.Open, Hash: strings.Repeat("ab", 32), OpenedAt: began,
			ExpiresAt: after(48 * time.Hour),
		},
		Agent: "clerk", Conversation: "anna\x1b[2J", Message: 12, TurnState: turnkeeper.TurnWaiting,
		Path: []operate.AskStep{{Turn: 40, Agent: "boss", Call: turnkeeper.CallKey{Round: 2, Ordinal: 1}},
			{Turn: 41, Agent: "clerk"}},
	}
	edited, answered, budget := open, open, open
	edited.ID, edited.State, edited.ClosedAt, edited.AnsweredBy, edited.Channel = 6, asks.Approved, after(time.Minute),
		"ann", "turnctl"
	edited.Edited, edited.Comment = `{"amount":90,"to":"acme"}`, "less"
	edited.CallState, edited.NotRun = turnkeeper.CallDenied,
		"denied: a person allowed this call, but\x1b[2J a rule denies it now"
	answered.ID, answered.Kind, answered.State, answered.Tool, answered.Arguments = 5, asks.KindQuestion, asks.Answered,
		"ask_person", `{"question":"Which colour?"}`
	answered.Reason = "Which colour?\nhash           abab"
	answered.Answer, answered.AnsweredBy, answered.ClosedAt, answered.Channel = `"blue"`, "bob", after(time.Hour), "sql"
	budget.ID, budget.Kind, budget.State, budget.Tool, budget.Call = 4, asks.KindBudget, asks.Expired, "",
		turnkeeper.CallKey{Round: 3}
	budget.Arguments, budget.Reason, budget.Rule, budget.ClosedAt, budget.Path = "{}", "the budget is used up", "",
		after(49*time.Hour), budget.Path[1:]
	return []operate.Ask{open, edited, answered, budget}
}

func TestAsks(t *testing.T) {
	var out bytes.Buffer
	screen := &term.Screen{W: &out}
	showAsks(screen, utcNow, exampleAsks())
	for _, a := range exampleAsks() {
		out.WriteString("\n")
		showAsk(screen, utcNow, a)
	}
	checkHarmless(t, out.String(), false)
	golden.File(t, "testdata/asks.txt", out.String())
	out.Reset()
	if err := shell.WriteJSON(&out, views.All(exampleAsks(), views.OfAsk)); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/asks.json", out.String())
}

// TestStatusOfAWaitingTurn describes turns that wait for detached calls, for people, and for both.
func TestStatusOfAWaitingTurn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		calls, asks int
		want        string
	}{
		{2, 0, "It waits for 2 detached calls and holds no lease or slot meanwhile."},
		{0, 1, "It waits for a person to answer 1 ask and holds no lease or slot meanwhile."},
		{1, 2, "It waits for a person to answer 2 asks and 1 detached call and holds no lease or slot meanwhile."},
	} {
		x := explainer{TurnView: waitingTurn()}
		x.Tree, x.Awaited = nil, make([]operate.AwaitedCall, c.calls)
		x.Message.Waits = nil
		if c.asks > 0 {
			x.Message.Waits = append(x.Message.Waits, waiting.Wait{Reason: waiting.Person, Count: c.asks})
		}
		if c.calls > 0 {
			x.Message.Waits = append(x.Message.Waits, waiting.Wait{Reason: waiting.DetachedCalls, Count: c.calls})
		}
		if got := x.status(); got != c.want {
			t.Errorf("%d calls, %d asks: %q", c.calls, c.asks, got)
		}
	}
}
