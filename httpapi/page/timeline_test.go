package page_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/httpapi/page"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

func TestTimeline(t *testing.T) {
	t.Parallel()
	zero := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return zero.Add(time.Duration(seconds) * time.Second) }
	turn := page.Turn{Now: at(100), TurnView: operate.TurnView{
		Turn:    turnkeeper.Turn{State: turnkeeper.TurnWaiting, Attempt: 1, CreatedAt: at(10)},
		Message: waiting.Message{Message: turnkeeper.Message{AcceptedAt: at(0), DueAt: at(5)}},
		Dispatches: []turnkeeper.Dispatch{
			{WorkerID: "one", GrantedAt: at(10), EndedAt: at(30), Outcome: "lost"},
			{WorkerID: "two", GrantedAt: at(45), EndedAt: at(60), Outcome: "waiting"},
		},
		Rounds: []turnkeeper.Round{{
			Number: 1, Provider: "p", Model: "m", Attempts: 3, Latency: 5 * time.Second, EndedAt: at(20),
			Usage: turnkeeper.Usage{InputTokens: 7, OutputTokens: 2},
			Calls: []turnkeeper.ToolCall{
				{Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, Name: "read", State: turnkeeper.CallSucceeded,
					EndedAt: at(22), Duration: time.Second},
				{Key: turnkeeper.CallKey{Round: 1, Ordinal: 2}, Name: "send", State: turnkeeper.CallRunning,
					Awaited: true, StartedAt: at(50)},
			},
		}},
	}}
	want := []page.Span{
		{Kind: "waited", What: "Waits in the inbox", Start: at(5), End: at(10)},
		{Kind: "held", What: "Held by one", Note: "dispatch 1, worker lost", State: "lost", Start: at(10), End: at(30)},
		{Kind: "model", What: "Round 1: p/m", Note: "retried 2 times", Tokens: 9, Start: at(15), End: at(20),
			Anchor: "round-1"},
		{Kind: "tool", What: "read", State: "succeeded", Start: at(21), End: at(22), Anchor: "round-1-tool-1"},
		{Kind: "waited", What: "Waits for another worker: the last one was lost", Start: at(30), End: at(45)},
		{Kind: "held", What: "Held by two", Note: "dispatch 2, until the turn waited", Start: at(45), End: at(60)},
		{Kind: "tool", What: "send", State: "running", Note: "detached", Start: at(50), Anchor: "round-1-tool-2"},
		{Kind: "waited", What: "Waits for a person and detached calls", Start: at(60)},
	}
	turn.Waited = []waiting.Parked{{At: at(60), Reasons: []waiting.Reason{waiting.Person, waiting.DetachedCalls}}}
	turn.Failed = []turnlog.FailedAttempt{
		{Round: 1, Provider: "p", Model: "m", Class: "overloaded", Latency: 2 * time.Second, EndedAt: at(14),
			Usage: turnkeeper.Usage{InputTokens: 7}},
		{Round: 2, Class: "interrupted", EndedAt: at(58)},
	}
	want = slices.Insert(want, 2, page.Span{
		Kind: "model", What: "Round 1: p/m", Note: "overloaded", State: "failed", Tokens: 7, Start: at(12), End: at(14),
		Anchor: "rounds",
	})
	want = slices.Insert(want, 8, page.Span{Kind: "model", What: "Round 2", Note: "interrupted", State: "failed",
		Start: at(58), End: at(58), Anchor: "rounds"})
	got := turn.Timeline()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(page.Span{}, "Left", "Width")); diff != "" {
		t.Error(diff)
	}
	last := len(got) - 1
	if got[0].Left != 0 || got[last].Left+got[last].Width != 1000 {
		t.Errorf("the line goes from %d to %d of 1000", got[0].Left, got[last].Left+got[last].Width)
	}
	turn.Turn.State, turn.Turn.UnderWay = turnkeeper.TurnRunning, &turnkeeper.UnderWay{Round: 2, OutputTokens: 30,
		Since: at(90)}
	open := turn.Timeline()
	if diff := cmp.Diff(page.Span{Kind: "model", What: "Round 2", Note: "in progress", Tokens: 30, Start: at(90)},
		open[len(open)-1],
		cmpopts.IgnoreFields(page.Span{}, "Left", "Width")); diff != "" {
		t.Error(diff)
	}
	for _, s := range got {
		if s.Left < 0 || s.Width < 1 || s.Left+s.Width > 1000 {
			t.Errorf("%s stands at %d with %d", s.What, s.Left, s.Width)
		}
	}
}
