package calls_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

func key(round, ordinal int) turnkeeper.CallKey {
	return turnkeeper.CallKey{Round: round, Ordinal: ordinal}
}

// askOf returns an ask about the call 1.1.
func askOf(id asks.ID, kind asks.Kind, n int, state asks.State) asks.Ask {
	return asks.Ask{ID: id, Question: asks.Question{Call: key(1, 1), Kind: kind, N: n}, State: state}
}

// listWith returns a list with two calls and these asks.
func listWith(all ...asks.Ask) *calls.List {
	rounds := []turnkeeper.Round{{Number: 1, Calls: []turnkeeper.ToolCall{{Key: key(1, 1), Starts: 1},
		{Key: key(1, 2)}}}}
	return calls.New(&turnlog.Record{Rounds: rounds, Asks: all}, prompt.Offer{Registry: &tools.Registry{}}, nil)
}

// callWith returns the call 1.1 with asks.
func callWith(planned turnkeeper.ToolCall, all ...asks.Ask) *calls.Call {
	planned.Key = key(1, 1)
	rounds := []turnkeeper.Round{{Number: 1, Calls: []turnkeeper.ToolCall{planned}}}
	return calls.New(&turnlog.Record{Rounds: rounds, Asks: all}, prompt.Offer{Registry: &tools.Registry{}},
		nil).Call(planned.Key)
}

func idsOf(all []asks.Ask) (ids []asks.ID) {
	for _, a := range all {
		ids = append(ids, a.ID)
	}
	return ids
}

// TestWhichAnswersAStartUses checks the ask and the hash of the start of a call. The store starts only what they allow.
func TestWhichAnswersAStartUses(t *testing.T) {
	approved, settled := askOf(7, asks.KindApprove, 1, asks.Approved), askOf(8, asks.KindSettle, 1, asks.Answered)
	edited := approved
	edited.Edited = `{"n":2}`
	planned := tools.Hash("pay", `{"n":1}`)
	for name, c := range map[string]struct {
		all    []asks.Ask
		gated  bool
		starts int
		ask    asks.ID
		hash   string
	}{
		"nothing":                     {nil, false, 0, 0, ""},
		"again":                       {nil, false, 1, 0, ""},
		"a gate":                      {nil, true, 0, 0, planned},
		"an approval":                 {[]asks.Ask{approved}, false, 0, 7, planned},
		"an approval and a gate":      {[]asks.Ask{approved}, true, 0, 7, planned},
		"an approval of a change":     {[]asks.Ask{edited}, true, 0, 7, tools.Hash("pay", `{"n":2}`)},
		"again after an approval":     {[]asks.Ask{approved}, false, 1, 0, planned},
		"it did not happen":           {[]asks.Ask{settled}, false, 1, 8, planned},
		"approved; it did not happen": {[]asks.Ask{approved, settled}, true, 1, 8, planned},
		"another start did not":       {[]asks.Ask{settled}, false, 2, 0, ""},
	} {
		call := callWith(turnkeeper.ToolCall{Name: "pay", Arguments: `{"n":1}`, Starts: c.starts,
			Effect: turnkeeper.EffectOnce}, c.all...)
		call.Gate = c.gated
		if got := call.Start("n"); got.Nonce != "n" || got.Ask != c.ask || got.Hash != c.hash ||
			got.Attempt != c.starts+1 {
			t.Errorf("%s: %+v, want ask %d and hash %q", name, got, c.ask, c.hash)
		}
	}
}

// TestWhichAnswersAreUnseen checks which answers a turn has yet to record as seen.
func TestWhichAnswersAreUnseen(t *testing.T) {
	seen := askOf(4, asks.KindQuestion, 1, asks.Answered)
	seen.Seen = true
	l := listWith(askOf(2, asks.KindApprove, 1, asks.Denied), askOf(3, asks.KindInput, 1, asks.Open), seen,
		askOf(5, asks.KindSettle, 1, asks.Expired))
	if ids := idsOf(l.Asks.That(calls.IsUnseen)); !slices.Equal(ids, []asks.ID{2, 5}) {
		t.Errorf("%v", ids)
	}
}

// TestAsksOfAnAnsweredCallAreWithdrawn checks that the open asks of a call are withdrawn, and no others.
func TestAsksOfAnAnsweredCallAreWithdrawn(t *testing.T) {
	other := askOf(3, asks.KindApprove, 1, asks.Open)
	other.Call = key(1, 2)
	l := listWith(askOf(2, asks.KindApprove, 1, asks.Approved), other)
	c := l.Call(key(1, 1))
	if gone := l.Withdraw(c); len(gone) != 0 || len(l.Asks) != 2 {
		t.Errorf("closed asks: %+v", gone)
	}
	l.Open(askOf(4, asks.KindSettle, 1, asks.Open))
	if gone := l.Withdraw(c); len(gone) != 1 || gone[0].ID != 4 || gone[0].State != asks.Withdrawn {
		t.Errorf("withdrawn: %+v", gone)
	}
	if ids := idsOf(l.Asks.That(calls.IsOpen)); !slices.Equal(ids, []asks.ID{3}) || c.Asks.Approval() == nil ||
		c.Settlement() != nil {
		t.Errorf("open are %v", ids)
	}
}

// TestArgumentsThatAreNoObjectAreWritten checks that what cannot be read counts as content that the model wrote.
func TestArgumentsThatAreNoObjectAreWritten(t *testing.T) {
	seen := []policy.Mark{{Label: policy.Private, Source: "a file"}}
	for text, private := range map[string]bool{"": true, "[]": true, "{": true, `"output:1"`: true, "null": true,
		"{}": false} {
		l := calls.New(&turnlog.Record{}, prompt.Offer{Registry: &tools.Registry{}}, seen)
		c := l.Make(&turnkeeper.ToolCall{Key: key(1, 1), Arguments: text})
		if got := len(policy.Only(policy.Private, l.LabelsOf(c))) > 0; got != private {
			t.Errorf("%q: private %v, want %v", text, got, private)
		}
	}
}

func TestWhichCallsOfAList(t *testing.T) {
	call := func(round, ordinal int, effect turnkeeper.Effect, state turnkeeper.CallState) turnkeeper.ToolCall {
		return turnkeeper.ToolCall{Key: key(round, ordinal), Effect: effect, State: state}
	}
	detached := call(2, 2, turnkeeper.EffectOnce, turnkeeper.CallRunning)
	detached.Awaited = true
	l := calls.New(&turnlog.Record{Rounds: []turnkeeper.Round{
		{Number: 1, Charged: true, Calls: []turnkeeper.ToolCall{call(1, 1, turnkeeper.EffectNone,
			turnkeeper.CallSucceeded)}},
		{Number: 2, Charged: true, Calls: []turnkeeper.ToolCall{
			call(2, 1, turnkeeper.EffectNone, turnkeeper.CallPlanned), detached, call(2, 3, turnkeeper.EffectOnce,
				turnkeeper.CallPlanned),
		}},
	}}, prompt.Offer{Registry: &tools.Registry{}, Bounds: turnkeeper.Bounds{MaxRounds: 3, RoundCeiling: 10}}, nil)
	keys := func(all []*calls.Call) (keys []turnkeeper.CallKey) {
		for _, call := range all {
			keys = append(keys, call.Key)
		}
		return keys
	}
	if diff := cmp.Diff([]turnkeeper.CallKey{key(2, 1), key(2, 3)}, keys(l.Unanswered())); diff != "" {
		t.Error("open:", diff)
	}
	if diff := cmp.Diff([]turnkeeper.CallKey{key(2, 2)}, keys(l.Detached())); diff != "" {
		t.Error("detached:", diff)
	}
	if earlier := l.Earlier(l.Call(key(2, 1))); len(earlier) != 1 || earlier[0].Key != key(1, 1) {
		t.Errorf("earlier: %v", earlier)
	}
	if l.Blocked(l.Call(key(2, 1))) || !l.Blocked(l.Call(key(2, 3))) {
		t.Error("an effect is held by the effect before it, and nothing else is held")
	}
	if l.UsedUp() || !l.NextIsLast() {
		t.Error("of three rounds, the next is the last")
	}
	l.Call(key(2, 3)).State, l.Call(key(2, 3)).Shown = turnkeeper.CallDenied, calls.OverLimit+
		"2 tool calls a turn; this one was not run"
	if !l.OverLimit() {
		t.Error("a call over the limit ends the turn")
	}
}

// TestWhichAsksAreAboutAReply checks that asks of other rounds and kinds do not count.
func TestWhichAsksAreAboutAReply(t *testing.T) {
	ask := func(round int, kind asks.Kind) asks.Ask {
		return asks.Ask{Question: asks.Question{Call: turnkeeper.CallKey{Round: round}, Kind: kind},
			State: asks.Approved}
	}
	l := listWith(ask(2, asks.KindReply), ask(3, asks.KindBudget), ask(3, asks.KindReply))
	if got := l.AsksAbout(3, asks.KindReply); len(got) != 1 || got[0].Kind != asks.KindReply || got[0].Call.Round != 3 {
		t.Errorf("%+v", got)
	}
}
