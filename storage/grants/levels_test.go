package grants_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/survival/survivaltest"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// TestTheRuleOfLevels checks that Go and the schema have the same rule.
func TestTheRuleOfLevels(t *testing.T) {
	h := newEnv(t)
	check := func(name string, before survival.Level, left, limit int64, want survival.Level) {
		t.Helper()
		if got := storagetest.One[survival.Level](h, "select turnkeeper.next_level($1, $2, $3)", string(before), left,
			limit); got != want {
			t.Errorf("%s: %d of %d left after %q: %q, want %q", name, left, limit, before, got, want)
		}
	}
	for _, c := range survivaltest.Cases {
		check(c.Name, c.Before, c.Left, c.Limit, c.Want)
	}
	for range 300 {
		before, limit := survival.Levels[rand.IntN(3)], rand.Int64N(500)
		left := rand.Int64N(limit+20) - 10
		check("random", before, left, limit, survival.Next(before, left, limit))
	}
	for _, a := range survival.Levels {
		for _, b := range survival.Levels {
			if got := storagetest.One[survival.Level](h, "select turnkeeper.worse_level($1, $2)", string(a),
				string(b)); got != survival.Worse(a, b) {
				t.Errorf("the worse of %s and %s is %s", a, b, got)
			}
		}
	}
}

// level returns the level of clerk.
func (h *env) level() survival.Level {
	h.T.Helper()
	return storagetest.One[survival.Level](h, "select turnkeeper.level_of('clerk')")
}

// limit registers clerk with a budget of a day.
func (h *env) limit(tokens, calls int64) {
	h.T.Helper()
	a := storagetest.Registration("clerk", false)
	a.DayTokens, a.DayCalls = tokens, calls
	if err := h.RegisterAgents(h.T.Context(), []turnkeeper.AgentRegistration{a}); err != nil {
		h.T.Fatal(err)
	}
}

func (h *env) reserve(tokens int64, chosen survival.Level) grants.SpendResult {
	h.T.Helper()
	a, err := h.ReserveSpend(h.T.Context(), grants.SpendRequest{Turn: 1, Agent: "clerk", Tokens: tokens, Level: chosen})
	if err != nil {
		h.T.Fatal(err)
	}
	return a
}

func (h *env) use(a grants.SpendResult, tokens int64) {
	h.T.Helper()
	if err := h.SettleSpend(h.T.Context(), a.Reservation, tokens); err != nil {
		h.T.Fatal(err)
	}
}

// TestLevelsFollowTheBudget spends an agent's day. A reservation counts for the level of the calls after it.
func TestLevelsFollowTheBudget(t *testing.T) {
	h := newEnv(t)
	h.limit(1000, 0)
	a := h.reserve(810, "normal")
	if a.Level != survival.Normal || h.level() != survival.Normal {
		t.Errorf("a call's own reservation counts for its level: %+v, then %s", a, h.level())
	}
	h.use(a, 800)
	if h.level() != survival.Normal {
		t.Errorf("%s with 20 %% left", h.level())
	}
	a = h.reserve(1, "normal")
	h.use(a, 1)
	if h.level() != survival.Low {
		t.Errorf("%s with 19.9 %% left", h.level())
	}
	before, _ := h.spent("agent:clerk")
	if a := h.reserve(5, "normal"); a.Blocked != "level" || a.Level != survival.Low || a.Reservation != 0 {
		t.Errorf("a call for another level: %+v", a)
	}
	if after, calls := h.spent("agent:clerk"); after != before || calls != 2 {
		t.Errorf("a call for another level took %d tokens and is call %d", after-before, calls)
	}
	large := h.reserve(195, "low")
	if large.Level != survival.Low || large.Blocked != "" {
		t.Errorf("%+v", large)
	}
	if a := h.reserve(1, ""); a.Level != survival.Critical || a.Blocked != "" {
		t.Errorf("beside a large reservation: %+v", a)
	}
	h.use(large, 0)
	if h.level() != survival.Low {
		t.Errorf("%s with 19.8 %% left", h.level())
	}
	h.limit(10_000, 0)
	if h.level() != survival.Normal {
		t.Errorf("%s after the budget was raised", h.level())
	}
	h.limit(10_000, 4)
	if h.level() != survival.Critical {
		t.Errorf("%s with all calls used", h.level())
	}
	h.Exec("update turnkeeper.spend set period = '2020-01-01' where scope = 'agent:clerk'")
	if h.level() != survival.Normal {
		t.Errorf("%s on a new day", h.level())
	}
	h.use(h.reserve(1, ""), 1)
	h.limit(0, 0)
	if h.level() != survival.Normal {
		t.Errorf("%s without a budget", h.level())
	}
}

// TestALevelOfATree checks that reservations in the budget of a tree know levels too.
func TestALevelOfATree(t *testing.T) {
	h := newEnv(t)
	h.limit(100, 0)
	h.use(h.reserve(90, ""), 90)
	r := grants.SpendRequest{Turn: 1, Agent: "clerk", Tokens: 1, Root: 1, TreeTokens: 1000, Level: survival.Normal}
	if a, err := h.ReserveSpend(t.Context(), r); err != nil || a.Blocked != "level" || a.Level != survival.Low {
		t.Errorf("%+v, error %v", a, err)
	}
	if tokens, calls := h.spent("tree:1"); tokens != 0 || calls != 0 {
		t.Errorf("a call for another level took %d tokens and %d calls of the tree", tokens, calls)
	}
	r.Level = survival.Low
	if a, err := h.ReserveSpend(t.Context(), r); err != nil || a.Blocked != "" || a.Reservation == 0 {
		t.Errorf("%+v, error %v", a, err)
	}
}

// TestPinsGoFirst checks which of an agent's own pin, that of all agents and the budget gives its level.
func TestPinsGoFirst(t *testing.T) {
	h := newEnv(t)
	h.limit(100, 0)
	h.use(h.reserve(90, ""), 90)
	pin := func(agent, level string, until time.Duration) {
		h.Exec(
			`insert into turnkeeper.pinned_levels (agent, level, pinned_by, until) values ($1, $2, 'ada', clock_timestamp() + $3::interval)
			on conflict (agent) do update set level = excluded.level, until = excluded.until`, agent, level, until)
	}
	for _, c := range []struct {
		name        string
		own, all    string
		expired     bool
		want, desks survival.Level
	}{
		{"no pin", "", "", false, "low", "normal"},
		{"its own", "critical", "", false, "critical", "normal"},
		{"its own, of a better level", "normal", "", false, "normal", "normal"},
		{"of all", "", "critical", false, "critical", "critical"},
		{"of all, of a better level", "", "normal", false, "normal", "normal"},
		{"both", "low", "critical", false, "low", "critical"},
		{"both expired", "critical", "critical", true, "low", "normal"},
	} {
		h.Exec("delete from turnkeeper.pinned_levels")
		until := time.Hour
		if c.expired {
			until = -time.Hour
		}
		if c.own != "" {
			pin("clerk", c.own, until)
		}
		if c.all != "" {
			pin("", c.all, until)
		}
		if got := h.level(); got != c.want {
			t.Errorf("%s: clerk is %s, want %s", c.name, got, c.want)
		}
		if a := h.reserve(0, ""); a.Level != c.want {
			t.Errorf("%s: a reservation says %s, want %s", c.name, a.Level, c.want)
		}
		if got := storagetest.One[survival.Level](h, "select turnkeeper.level_of('desk')"); got != c.desks {
			t.Errorf("%s: desk is %s, want %s", c.name, got, c.desks)
		}
	}
}
