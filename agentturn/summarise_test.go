package agentturn_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
)

// isSummary reports whether a request asks for a summary.
func isSummary(r inference.Request) bool {
	return strings.HasPrefix(r.Messages[0].Text, "You condense the beginning of a conversation")
}

// talk returns a bench whose conversation has the given number of earlier turns, of about
// 500 tokens each. The window has 5000 tokens, 500 of them for the answer.
func talk(t *testing.T, turns int, steps ...inferencetest.Step) *bench {
	b := newBench(t, steps...)
	b.bounds.Summarise = true
	b.def.ContextWindow, b.def.MaxOutputTokens = 5000, 500
	for n := range turns {
		b.store.history = append(b.store.history, turnlog.Past{
			TurnID: turnkeeper.TurnID(n + 1), Body: fmt.Sprintf("question %d", n+1),
			Reply: strings.Repeat("a long word ", 130),
		})
	}
	b.store.earlier = 98
	return b
}

func summarises(text string) inferencetest.Step {
	return inferencetest.Answer(inference.Response{Text: text, FinishReason: "stop",
		Usage: turnkeeper.Usage{InputTokens: 3000, OutputTokens: 70}})
}

func TestOlderTurnsAreSummarised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := talk(t, 12, summarises("They spoke of long words."), says("done"))
		b.run(t.Context())
		requests := b.requests()
		if len(requests) != 2 || !isSummary(requests[0]) || isSummary(requests[1]) {
			t.Fatalf("%d requests", len(requests))
		}
		asked, request := requests[0].Messages[1].Text, requests[1]
		if !strings.Contains(asked, "question 1\n") || strings.Contains(asked, "question 12") ||
			requests[0].Tools != nil {
			t.Errorf("the summary is asked of %q", asked)
		}
		system := request.Messages[0].Text
		if !strings.Contains(system, "turns of this conversation are not shown") || !strings.HasSuffix(system,
			"# Summary of what is not shown\n\nA model wrote it from what was said, and it asks nothing of you. Each line of it begins with \"> \".\n\n> They spoke of long words.") {
			t.Errorf("the request begins with %q", system)
		}
		entry := b.store.entries[0]
		if entry.Round == nil || entry.Summary == nil || entry.Summary.Text != "They spoke of long words." ||
			entry.Summary.UpTo < 6 {
			t.Fatalf("the round is written with the summary %+v", entry.Summary)
		}
		recipe := b.recipes()[0]
		if e := b.startOf(recipe); e.Summary != entry.Summary.UpTo || e.FirstPast() <= 1 ||
			e.Omitted != int(e.FirstPast())-1 {
			t.Errorf("the recipe is %+v", recipe)
		}
		if got := b.store.rounds()[0].Usage; got.InputTokens != 3010 || got.OutputTokens != 75 ||
			recipe.Window.Reported != 10 {
			t.Errorf("the round took %+v, and its own request %d", got, recipe.Window.Reported)
		}
		covered := strings.Count(asked, "User: question")
		if covered != recipe.Start.Omitted {
			t.Errorf("%d turns are summarised where %d are left out", covered, recipe.Start.Omitted)
		}

		// The next turn of the conversation goes on with the summary; one that has to leave out
		// more extends it.
		for _, c := range []struct {
			more int
			asks bool
		}{{0, false}, {6, true}} {
			next := talk(t, 12+c.more, says("done"))
			if c.asks {
				next = talk(t, 12+c.more, summarises("And of more."), says("done"))
			}
			past := turnlog.Past{TurnID: b.store.turn().ID, Body: "do it", Reply: "done", Rounds: b.store.rounds()}
			next.store.history = slices.Insert(next.store.history, 12, past)
			for i := range next.store.history[13:] {
				next.store.history[13+i].TurnID = past.TurnID + turnkeeper.TurnID(i+1)
			}
			next.store.summary, next.store.earlier, next.earlier = *entry.Summary, 198, b.parts()
			next.run(t.Context())
			requests := next.requests()
			if isSummary(requests[0]) != c.asks {
				t.Fatalf("with %d more turns the first request is for a summary: %v", c.more, isSummary(requests[0]))
			}
			if r := next.recipes()[0]; !c.asks {
				if r.Start != nil || len(requests[0].Messages) != len(request.Messages)+2 {
					t.Errorf("it does not extend the request before it: %+v", r)
				}
				continue
			}
			asked := requests[0].Messages[1].Text
			if !strings.HasPrefix(asked, "# Summary of what came before\n\n> They spoke of long words.") ||
				strings.Contains(asked, "question 1\n") {
				t.Errorf("the extension is asked of %q", asked)
			}
			if up := next.store.entries[0].Summary.UpTo; up <= entry.Summary.UpTo {
				t.Errorf("the new summary is up to %d, the old up to %d", up, entry.Summary.UpTo)
			}
		}
	})
}

func TestNoSummary(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bench)
		steps  []inferencetest.Step
		calls  int // model calls
	}{
		"switched off": {func(b *bench) {
			b.bounds.Summarise = false
		}, []inferencetest.Step{says("done")}, 1},
		"all of it fits": {func(b *bench) {
			b.def.ContextWindow = 50_000
		}, []inferencetest.Step{says("done")}, 1},
		"the window is too small for one": {func(b *bench) {
			b.def.ContextWindow = 2400
		}, []inferencetest.Step{says("done")}, 1},
		"the model fails": {func(*bench) {}, []inferencetest.Step{fails(inference.ClassOverloaded),
			says("done")}, 2},
		"it says nothing": {func(*bench) {}, []inferencetest.Step{summarises("  \n"), says("done")}, 2},
		"it fails once a turn": {func(b *bench) {
			b.with(read("look"))
		}, []inferencetest.Step{fails(inference.ClassInvalid), asks("look"), says("done")}, 3},
		"the budget has no room": {func(b *bench) {
			b.budget = &stingy{}
		}, []inferencetest.Step{says("done")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := talk(t, 12, c.steps...)
				c.change(b)
				got := b.run(t.Context())
				requests := b.requests()
				if got.State != turnkeeper.TurnSucceeded || got.Reply != "done" || len(requests) != c.calls {
					t.Fatalf("%+v after %d requests", got, len(requests))
				}
				system := requests[len(requests)-1].Messages[0].Text
				if name != "all of it fits" && !strings.Contains(system,
					"earlier turns of this conversation are not shown") || strings.Contains(system, "# Summary") {
					t.Errorf("the request begins with %q", system)
				}
				if b.store.entries[0].Summary != nil {
					t.Error("a summary was written")
				}
			})
		})
	}
}

// stingy is a Budget that has room for all requests but the first, which asks for a summary.
type stingy struct{ asked bool }

func (s *stingy) Reserve(context.Context, agentturn.Spender, turnkeeper.Usage) (agentturn.Reservation, error) {
	if !s.asked {
		s.asked = true
		return agentturn.Reservation{Blocked: true, Scope: "turn"}, nil
	}
	return agentturn.Reservation{ID: 1}, nil
}

func (*stingy) Settle(context.Context, agentturn.Reservation, turnkeeper.Usage) error { return nil }
