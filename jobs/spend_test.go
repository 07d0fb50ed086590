package jobs_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/jobs"
)

// The reason of a blocked call names the limit that blocked it, and no other.
func TestReasonOfABlockedCall(t *testing.T) {
	cases := map[string]struct {
		limits agentturn.SpendLimits
		calls  int // earlier calls, of 100 tokens each
		want   string
	}{
		"one call a turn": {agentturn.SpendLimits{TurnCalls: 1, TurnTokens: 10_000}, 1,
			"the turn's budget of 1 model call is used up"},
		"two calls a turn": {agentturn.SpendLimits{TurnCalls: 2}, 2,
			"the turn's budget of 2 model calls is used up"},
		"a call a day": {agentturn.SpendLimits{DayCalls: 1}, 1,
			"the agent's budget of 1 model call a day is used up"},
		"tokens of a turn": {agentturn.SpendLimits{TurnTokens: 250, TurnCalls: 9}, 2,
			"the turn's budget of 250 tokens has no room for another model call: 200 are taken, and it may take 100"},
		"all tokens of a turn": {agentturn.SpendLimits{TurnTokens: 200}, 2,
			"the turn's budget of 200 tokens is used up"},
		"calls of a tree": {agentturn.SpendLimits{TreeCalls: 2}, 2,
			"the tree's budget of 2 model calls for all its agents is used up"},
		"all tokens of a tree": {agentturn.SpendLimits{TreeTokens: 200}, 2,
			"the tree's budget of 200 tokens for all its agents is used up"},
		"tokens of a tree": {agentturn.SpendLimits{TreeTokens: 250}, 2,
			"the tree's budget of 250 tokens for all its agents has no room for another model call: 200 are taken, and it may take 100"},
		"tokens of a day": {agentturn.SpendLimits{DayTokens: 150}, 1,
			"the agent's budget of 150 tokens a day has no room for another model call: 100 are taken, and it may take 100"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			who := agentturn.Spender{Turn: 1, Root: 1, Agent: "clerk", Limits: c.limits}
			spend := &jobs.Spend{Grants: s.Grants}
			for range c.calls {
				r, err := spend.Reserve(t.Context(), who, turnkeeper.Usage{InputTokens: 100})
				if err != nil || r.Blocked {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			r, err := spend.Reserve(t.Context(), who, turnkeeper.Usage{InputTokens: 100})
			if err != nil || !r.Blocked {
				t.Fatalf("%+v, %v", r, err)
			}
			if r.Reason != c.want {
				t.Errorf("got  %s\nwant %s", r.Reason, c.want)
			}
		})
	}
}

// The time until a day's budget is available again comes from the database's clock, which also
// determines the day. The clock of the bubble is in another year.
func TestADaysBudgetOpensByTheDatabasesClock(t *testing.T) {
	s := newSite(t)
	spend := &jobs.Spend{Grants: s.Grants}
	who := agentturn.Spender{Turn: 1, Agent: "clerk", Limits: agentturn.SpendLimits{DayCalls: 1}}
	reserve := func(t *testing.T) agentturn.Reservation {
		t.Helper()
		r, err := spend.Reserve(t.Context(), who, turnkeeper.Usage{InputTokens: 100})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	reserve(t)
	left := time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour))
	synctest.Test(t, func(t *testing.T) {
		r := reserve(t)
		if !r.Blocked || r.Retry <= 0 || r.Retry > left {
			t.Errorf("%+v, want it to be open again within %s", r, left)
		}
	})
}

// A call that needs more tokens than the budget of a day does not wait for another day.
func TestACallThatNoDayHasRoomFor(t *testing.T) {
	s := newSite(t)
	spend := &jobs.Spend{Grants: s.Grants}
	for name, c := range map[string]struct {
		limits agentturn.SpendLimits
		never  bool
	}{
		"tokens of one day":    {agentturn.SpendLimits{DayTokens: 99}, true},
		"tokens that are left": {agentturn.SpendLimits{DayTokens: 100}, false},
		"calls that are left":  {agentturn.SpendLimits{DayCalls: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			who := agentturn.Spender{Turn: 1, Agent: "agent-" + strings.ReplaceAll(name, " ", "-"), Limits: c.limits}
			var r agentturn.Reservation
			for range 2 {
				var err error
				if r, err = spend.Reserve(t.Context(), who, turnkeeper.Usage{InputTokens: 100}); err != nil {
					t.Fatal(err)
				}
			}
			if !r.Blocked || r.Scope != "day" || r.Never != c.never {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A turn waits for the next day, because its agent's budget is used up. When the budget is raised,
// the turn continues at once. A lowered budget applies too.
func TestARaisedBudgetReachesATurnThatWaits(t *testing.T) {
	s := newSite(t)
	agent := func(budget string) {
		s.register("clerk", "---\ndescription: d\nmodel: script/m\nbudget: {"+budget+"}\n---\nYou are the clerk.\n")
	}
	agent("day_calls: 1")
	s.start(kind{model: echo, scheduler: true})
	s.reply(s.enqueue("clerk", "", "first"))
	// Spend tomorrow's budget too, because midnight may come during the test.
	s.exec(`insert into turnkeeper.spend (scope, period, tokens, calls)
		select scope, to_char(to_date(period, 'YYYY-MM-DD') + 1, 'YYYY-MM-DD'), tokens, calls from turnkeeper.spend where period <> ''`)
	second := s.enqueue("clerk", "", "second")
	const waits = "exists (select from turnkeeper.turns where state = 'queued' and error_class = 'budget' and due_at > now())"
	s.await(waits)
	agent("turn_calls: 9, day_calls: 1")
	s.await(waits+" and (select dispatches from turnkeeper.turns where message_id = $1) = 2", second)
	agent("day_calls: 2")
	if reply := s.reply(second); reply.Body != "re: second" {
		t.Errorf("reply %q", reply.Body)
	}
}
