package grants_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

func (h *env) spent(scope string) (tokens, calls int64) {
	h.T.Helper()
	return storagetest.One[int64](h, "select coalesce(sum(tokens), 0)::bigint from turnkeeper.spend where scope = $1",
			scope),
		storagetest.One[int64](h, "select coalesce(sum(calls), 0)::bigint from turnkeeper.spend where scope = $1",
			scope)
}

func TestConcurrentReservationsNeverExceedTheLimit(t *testing.T) {
	cases := map[string]struct {
		request      grants.SpendRequest
		manyTurns    bool
		scope, block string
		granted      int
	}{
		"tokens of a day":  {grants.SpendRequest{Tokens: 30, DayTokens: 1000}, true, "agent:a", "day", 33},
		"calls of a day":   {grants.SpendRequest{Tokens: 30, DayCalls: 20}, true, "agent:a", "day", 20},
		"tokens of a turn": {grants.SpendRequest{Tokens: 30, TurnTokens: 1000}, false, "turn:1", "turn", 33},
		"calls of a turn":  {grants.SpendRequest{Tokens: 30, TurnCalls: 20}, false, "turn:1", "turn", 20},
	}
	h := newEnv(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h.Exec("truncate turnkeeper.spend, turnkeeper.spend_reservations")
			var mu sync.Mutex
			granted := 0
			var group sync.WaitGroup
			for i := range 60 {
				group.Go(func() {
					r := c.request
					r.Agent, r.Turn = "a", 1
					if c.manyTurns {
						r.Turn = turnkeeper.TurnID(i + 1)
					}
					answer, err := h.ReserveSpend(t.Context(), r)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					switch {
					case answer.Blocked == "" && answer.Reservation > 0:
						granted++
					case answer.Blocked != c.block || answer.Reservation != 0:
						t.Errorf("answer %+v", answer)
					}
				})
			}
			group.Wait()
			tokens, calls := h.spent(c.scope)
			if granted != c.granted || tokens != int64(granted)*30 || calls != int64(granted) {
				t.Errorf("%d reservations of %d; %d tokens and %d calls on record", granted, c.granted, tokens, calls)
			}
		})
	}
}

func TestSettledSpend(t *testing.T) {
	h := newEnv(t)
	reserve := func(tokens int64) int64 {
		t.Helper()
		answer, err := h.ReserveSpend(t.Context(), grants.SpendRequest{Turn: 1, Agent: "a", Tokens: tokens,
			TurnTokens: 1000})
		if err != nil || answer.Blocked != "" {
			t.Fatalf("%+v, error %v", answer, err)
		}
		return answer.Reservation
	}
	cheap, dear := reserve(400), reserve(100)
	for range 2 { // a repetition has no effect
		if err := h.SettleSpend(t.Context(), cheap, 50); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.SettleSpend(t.Context(), dear, 800); err != nil {
		t.Fatal(err)
	}
	if tokens, calls := h.spent("turn:1"); tokens != 850 || calls != 2 {
		t.Errorf("the turn has spent %d tokens in %d calls, want 850 in 2", tokens, calls)
	}
	if tokens, _ := h.spent("agent:a"); tokens != 850 {
		t.Errorf("the agent has spent %d tokens", tokens)
	}
	answer, err := h.ReserveSpend(t.Context(), grants.SpendRequest{Turn: 1, Agent: "a", Tokens: 200, TurnTokens: 1000})
	if err != nil || answer.Blocked != "turn" || answer.UsedTokens != 850 || answer.UsedCalls != 2 {
		t.Errorf("%+v, error %v", answer, err)
	}
	if tokens, _ := h.spent("agent:a"); tokens != 850 {
		t.Errorf("a blocked reservation took from the agent's day: %d", tokens)
	}
	if err := h.SettleSpend(t.Context(), 9999, 1); err != nil {
		t.Errorf("an unknown reservation: %v", err)
	}
}

// spending returns the spend of each scope, today and on an earlier day, and all reservations.
func (h *env) spending() map[string]string {
	h.T.Helper()
	rows, _ := h.Pool().Query(h.T.Context(), `
		select scope || case when period = '2020-01-01' then ' before' else '' end, format('%s in %s', sum(tokens), sum(calls)) from turnkeeper.spend group by 1
		union all select format('reservation %s', id), (to_jsonb(r) - 'settled_at')::text from turnkeeper.spend_reservations r`)
	all := map[string]string{}
	var name, row string
	if _, err := pgx.ForEachRow(rows, []any{&name, &row}, func() error { all[name] = row; return nil }); err != nil {
		h.T.Fatal(err)
	}
	return all
}

// TestSpendIsTakenFromItsOwnBudgets reserves 30 tokens, up to each limit and beyond it. The turn, the
// tree and the agent's day have spent 70 tokens in 3 calls each. The spend of other scopes, and that
// of the agent on another day, does not change.
func TestSpendIsTakenFromItsOwnBudgets(t *testing.T) {
	h := newEnv(t)
	// budgets of another turn and tree that are not used up
	h.Exec("insert into turnkeeper.spend (scope, period) values ('turn:1', ''), ('tree:1', '')")
	for i, c := range []struct {
		limits  grants.SpendRequest
		blocked string
		settled int64 // if the reservation is not blocked
	}{
		{grants.SpendRequest{}, "", 10},
		{grants.SpendRequest{DayTokens: 100, DayCalls: 4}, "", 10},
		{grants.SpendRequest{DayTokens: 99}, "day", 0},
		{grants.SpendRequest{DayCalls: 3}, "day", 0},
		{grants.SpendRequest{TurnTokens: 100, TurnCalls: 4}, "", 40},
		{grants.SpendRequest{TurnTokens: 99}, "turn", 0},
		{grants.SpendRequest{TurnCalls: 3}, "turn", 0},
		{grants.SpendRequest{Root: 1}, "", 10},
		{grants.SpendRequest{Root: 1, TreeTokens: 100, TreeCalls: 4}, "", 40},
		{grants.SpendRequest{Root: 1, TreeTokens: 99}, "tree", 0},
		{grants.SpendRequest{Root: 1, TreeCalls: 3}, "tree", 0},
		{grants.SpendRequest{Root: 1, TurnTokens: 99}, "turn", 0},
		{grants.SpendRequest{Root: 1, DayCalls: 3}, "day", 0},
	} {
		r := c.limits
		r.Agent, r.Turn, r.Tokens = fmt.Sprint("agent-", i), turnkeeper.TurnID(1000+i), 30
		if r.Root != 0 {
			r.Root = turnkeeper.TurnID(2000 + i)
		}
		h.Exec(`insert into turnkeeper.spend (scope, period, tokens, calls) values
			('agent:' || $1, '2020-01-01', 5000, 50),
			('agent:' || $1, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD'), 70, 3),
			('agent:' || $1, to_char(clock_timestamp() at time zone 'UTC' + interval '1 day', 'YYYY-MM-DD'), 70, 3), -- should it be midnight now
			('turn:' || $2::bigint, '', 70, 3), ('tree:' || $3::bigint, '', 70, 3)`, r.Agent, r.Turn, 2000+i)
		h.Exec(
			"insert into turnkeeper.spend_reservations (turn_id, agent, period, tokens) values ($2, $1, '2020-01-01', 1000)", r.Agent, r.Turn)
		want := h.spending()
		a, err := h.ReserveSpend(t.Context(), r)
		if err != nil || a.Blocked != c.blocked || (a.Reservation == 0) != (c.blocked != "") {
			t.Errorf("%+v: %+v, error %v; want it blocked by %q", c.limits, a, err, c.blocked)
		}
		now := h.spending()
		reservation := fmt.Sprint("reservation ", a.Reservation)
		take := func(agent, others string) {
			want["agent:"+r.Agent] = agent
			want[fmt.Sprint("turn:", r.Turn)] = others
			if r.Root != 0 {
				want[fmt.Sprint("tree:", r.Root)] = others
			}
		}
		if c.blocked == "" {
			take("170 in 7", "100 in 4")
			want[reservation] = now[reservation]
		}
		if diff := cmp.Diff(want, now); diff != "" {
			t.Errorf("%+v: taken is (-want +got):\n%s", c.limits, diff)
		}
		if c.blocked != "" {
			continue
		}
		for range 2 { // a repetition has no effect
			if err := h.SettleSpend(t.Context(), a.Reservation, c.settled); err != nil {
				t.Fatal(err)
			}
			now = h.spending()
			take(fmt.Sprint(140+c.settled, " in 7"), fmt.Sprint(70+c.settled, " in 4"))
			want[reservation] = now[reservation]
			if diff := cmp.Diff(want, now); diff != "" {
				t.Errorf("%+v, settled: taken is (-want +got):\n%s", c.limits, diff)
			}
		}
		root := storagetest.One[turnkeeper.TurnID](h,
			"select coalesce(root, 0) from turnkeeper.spend_reservations where id = $1", a.Reservation)
		if root != r.Root {
			t.Errorf("the reservation is of the tree %d, want %d", root, r.Root)
		}
	}
}

// TestSpendIsOfTheFirstAttempt reserves spend for both attempts at two messages. All of it counts
// for the first attempt at its message. An older turn, of another message, does not matter.
func TestSpendIsOfTheFirstAttempt(t *testing.T) {
	h := newEnv(t)
	h.TurnOf("clerk", "worker-1").Finish(t, "done")
	attempts := func(agent string) (first, second turnkeeper.TurnID) {
		d := h.TurnOf(agent, "worker-1")
		failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
			Error: "no", Retry: true}
		if err := d.Append(t.Context(), turnlog.Entry{Outcome: &failed},
			turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished"}); err != nil {
			t.Fatal(err)
		}
		h.Exec("update turnkeeper.leases set not_before = null")
		return d.Grant.TurnID, h.Dispatch("worker-1")[0].Grant.TurnID
	}
	root, rootAgain := attempts("clerk")
	turn, turnAgain := attempts("desk")
	for _, r := range []grants.SpendRequest{
		{Turn: turn, Agent: "desk", Tokens: 1}, {Turn: turnAgain, Agent: "desk", Tokens: 1},
		{Turn: turnAgain, Agent: "desk", Tokens: 1, Root: rootAgain}, {Turn: turn, Agent: "desk",
			Tokens: 1, Root: root},
		{Turn: root, Agent: "clerk", Tokens: 1}, {Turn: rootAgain, Agent: "clerk", Tokens: 1, Root: turnAgain},
	} {
		if a, err := h.ReserveSpend(t.Context(), r); err != nil || a.Blocked != "" {
			t.Errorf("%+v: %+v, error %v", r, a, err)
		}
	}
	got := storagetest.One[string](h,
		"select string_agg(format('%s %s', scope, calls), ', ' order by scope) from turnkeeper.spend where scope not like 'agent:%'")
	if want := fmt.Sprintf("tree:%d 2, tree:%d 1, turn:%[1]d 2, turn:%d 4", root, turn); got != want {
		t.Errorf("taken is %s, want %s", got, want)
	}
}

// Calls of one turn may reserve and settle at the same time, in any order, without a deadlock.
func TestReserveAndSettleBesideEachOther(t *testing.T) {
	h := newEnv(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 25 {
				answer, err := h.ReserveSpend(t.Context(), grants.SpendRequest{Turn: 1, Agent: "a", Tokens: 10})
				if err == nil {
					err = h.SettleSpend(t.Context(), answer.Reservation, 7)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if tokens, calls := h.spent("turn:1"); tokens != 8*25*7 || calls != 8*25 {
		t.Errorf("%d tokens in %d calls", tokens, calls)
	}
}
