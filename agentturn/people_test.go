package agentturn

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// askOf returns an ask about the call 1.1.
func askOf(id asks.ID, kind asks.Kind, n int, state asks.State) asks.Ask {
	return asks.Ask{ID: id, Question: asks.Question{Call: key(1, 1), Kind: kind, N: n}, State: state}
}

// ledgerWith returns a ledger with asks.
func ledgerWith(all []asks.Ask) *ledger {
	l := &ledger{task: &task{log: zap.NewNop()}, events: transcript.New(1, 1)}
	l.people = people{asks: all, gates: map[turnkeeper.CallKey]bool{}, decisions: map[turnkeeper.CallKey]policy.Decision{}}
	return l
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
		l := ledgerWith(c.all)
		l.people.gates[key(1, 1)] = c.gated
		call := turnkeeper.ToolCall{Key: key(1, 1), Name: "pay", Arguments: `{"n":1}`, Starts: c.starts, Effect: turnkeeper.EffectOnce}
		if got := (approvals{l}).newStart(&call); got.Ask != c.ask || got.Hash != c.hash || got.Attempt != c.starts+1 {
			t.Errorf("%s: %+v, want ask %d and hash %q", name, got, c.ask, c.hash)
		}
	}
}

// TestWhichReadsMayAsk checks which reading calls run alone because a person may have to approve them.
func TestWhichReadsMayAsk(t *testing.T) {
	for name, c := range map[string]struct {
		tool     string
		all      []asks.Ask
		decision policy.Verdict
		want     bool
	}{
		"allowed":                    {"look", nil, policy.Allow, false},
		"asked about":                {"look", nil, policy.Ask, true},
		"denied":                     {"look", nil, policy.Deny, true},
		"approved, and allowed now":  {"look", []asks.Ask{askOf(7, asks.KindApprove, 1, asks.Approved)}, policy.Allow, true},
		"another ask":                {"look", []asks.Ask{askOf(7, asks.KindInput, 1, asks.Answered)}, policy.Allow, false},
		"the model's own question":   {turnkeeper.ToolAskPerson, nil, policy.Allow, true},
		"denied although it was not": {"look", []asks.Ask{askOf(7, asks.KindApprove, 1, asks.Approved)}, policy.Deny, true},
	} {
		l := ledgerWith(c.all)
		l.people.decisions[key(1, 1)] = policy.Decision{Verdict: c.decision}
		if got := (rulings{l}).mayAsk(t.Context(), &turnkeeper.ToolCall{Key: key(1, 1), Name: c.tool}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestWhichAnswersAreUnseen checks that each answer is recorded as seen once.
func TestWhichAnswersAreUnseen(t *testing.T) {
	seen := askOf(4, asks.KindQuestion, 1, asks.Answered)
	seen.Seen = true
	p := people{asks: []asks.Ask{askOf(2, asks.KindApprove, 1, asks.Denied), askOf(3, asks.KindInput, 1, asks.Open), seen, askOf(5, asks.KindSettle, 1, asks.Expired)}}
	l := ledgerWith(p.asks)
	approvals{l}.see()
	if !slices.Equal(l.pending.Seen, []asks.ID{2, 5}) {
		t.Errorf("%v", l.pending.Seen)
	}
	events := l.events.Unwritten()
	if len(events) != 2 || events[0].Type != turnkeeper.EventAskClosed || !strings.Contains(string(events[1].Data), `"state":"expired"`) {
		t.Errorf("events: %v", events)
	}
}

// TestAsksOfAnAnsweredCallAreWithdrawn checks that the open asks of a call are withdrawn, those that are not yet written too.
func TestAsksOfAnAnsweredCallAreWithdrawn(t *testing.T) {
	other := askOf(3, asks.KindApprove, 1, asks.Open)
	other.Call = key(1, 2)
	l := ledgerWith([]asks.Ask{askOf(2, asks.KindApprove, 1, asks.Approved), other})
	l.pending.Asks = []asks.Question{other.Question}
	if l.withdraw(key(1, 1)); len(l.pending.Withdrawn) != 0 || len(l.people.asks) != 2 {
		t.Errorf("closed asks: %+v", l.pending.Withdrawn)
	}
	open := askOf(4, asks.KindSettle, 1, asks.Open)
	l.people.asks, l.pending.Asks = append(l.people.asks, open), append(l.pending.Asks, open.Question)
	l.withdraw(key(1, 1))
	if !slices.Equal(l.pending.Withdrawn, []turnkeeper.CallKey{key(1, 1)}) || len(l.pending.Asks) != 1 || l.pending.Asks[0].Call != key(1, 2) {
		t.Errorf("withdrawn %v, to be asked %+v", l.pending.Withdrawn, l.pending.Asks)
	}
	if len(l.people.asks) != 2 || l.people.asks[0].ID != 2 || l.people.asks[1].ID != 3 {
		t.Errorf("left are %+v", l.people.asks)
	}
}

// TestArgumentsThatAreNoObjectAreWritten checks that what cannot be read counts as content that the model wrote.
func TestArgumentsThatAreNoObjectAreWritten(t *testing.T) {
	for _, text := range []string{"", "[]", "{", `"output:1"`, "null"} {
		if keys, written := (flows{ledgerWith(nil)}).handlesIn(&turnkeeper.ToolCall{Arguments: text}); len(keys) != 0 || !written {
			t.Errorf("%q: %v, %v", text, keys, written)
		}
	}
}

// TestWhichQuestionsAreOnRecord checks which asks and calls of earlier dispatches count.
func TestWhichQuestionsAreOnRecord(t *testing.T) {
	r := &turnlog.Record{Asks: []asks.Ask{
		askOf(1, asks.KindInput, 1, asks.Answered), askOf(2, asks.KindInput, 2, asks.Open), askOf(3, asks.KindApprove, 1, asks.Approved),
		askOf(4, asks.KindQuestion, 1, asks.Answered),
	}}
	used := turnkeeper.Usage{InputTokens: 1}
	r.Rounds = []turnkeeper.Round{{Calls: []turnkeeper.ToolCall{{Usage: used}, {}, {Paging: true, Usage: used}, {Paging: true}, {Usage: used}}}}
	if got := newQuestions(r).asked.Load(); got != 4 { // two inputs, and two calls that have asked models
		t.Errorf("%d questions", got)
	}
}

// TestASettledCall checks what becomes of a started call by the answer of a person who was asked whether it happened.
func TestASettledCall(t *testing.T) {
	answered := func(answer, arguments string) *asks.Ask {
		a := askOf(7, asks.KindSettle, 1, asks.Answered)
		a.Answer, a.Hash = answer, tools.Hash("pay", arguments)
		return &a
	}
	open, expired := askOf(7, asks.KindSettle, 1, asks.Open), askOf(7, asks.KindSettle, 1, asks.Expired)
	same := tools.Hash("pay", `{"n":1}`)
	for name, c := range map[string]struct {
		ask     *asks.Ask
		settles bool
		want    settleStep
	}{
		"nobody is to decide":        {nil, false, settleUnknown},
		"a person is to decide":      {nil, true, settleAsk},
		"open":                       {&open, true, settleAwait},
		"open, and set otherwise":    {&open, false, settleAwait},
		"expired":                    {&expired, true, settleUnknown},
		"it happened":                {answered(asks.Happened, `{"n":1}`), true, settleHappened},
		"nobody knows":               {answered(asks.Unknown, `{"n":1}`), true, settleUnknown},
		"it did not happen":          {answered(asks.DidNotHappen, `{"n":1}`), true, settleStart},
		"another call did not":       {answered(asks.DidNotHappen, `{"n":2}`), true, settleUnknown},
		"it did not; set otherwise":  {answered(asks.DidNotHappen, `{"n":1}`), false, settleStart},
		"it happened; set otherwise": {answered(asks.Happened, `{"n":1}`), false, settleHappened},
	} {
		if got := settleStepOf(c.ask, c.settles, same); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
