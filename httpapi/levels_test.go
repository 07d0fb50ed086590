package httpapi_test

import (
	"strings"
	"testing"

	"turnkeeper/storage/operate"
)

// TestLevelsByToken checks whose levels a token sees and pins, and that the pin names the token.
func TestLevelsByToken(t *testing.T) {
	h := newEnv(t)
	one[int](h, "update turnkeeper.agents set day_calls = 100 returning 1")
	clerks := h.token(operate.Token{Name: "clerks", Scopes: []string{"read", "operate"}, Agents: []string{"clerk"}})
	all := h.token(operate.Token{Name: "all", Scopes: []string{"read", "operate"}})
	seen := h.ask("GET", "/v1/levels", "", "Authorization", clerks)
	seen.want(t, 200, `"agent":"clerk"`)
	if strings.Contains(string(seen.body), "desk") {
		t.Errorf("a token for clerk sees %s", seen.body)
	}
	h.ask("POST", "/v1/levels/pin", `{"level":"low"}`, "Authorization", clerks).want(t, 403, "")
	h.ask("POST", "/v1/levels/pin", `{"agent":"desk","level":"low"}`, "Authorization", clerks).want(t, 404, "")
	h.ask("POST", "/v1/levels/unpin", `{"agent":"desk"}`, "Authorization", clerks).want(t, 404, "")
	h.ask("POST", "/v1/levels/pin", `{"agent":"clerk","level":"low","by":"somebody else"}`, "Authorization", clerks).want(t, 200, `"by":"clerks"`)
	h.ask("POST", "/v1/levels/pin", `{"level":"critical"}`, "Authorization", all).want(t, 200, `"by":"all"`)
	h.ask("GET", "/v1/levels", "", "Authorization", all).want(t, 200, `"level":"critical"`)
}

// TestLevelsOnThePage checks that the overview shows the levels that are not normal.
func TestLevelsOnThePage(t *testing.T) {
	h := newEnv(t)
	const heading = "Survival levels"
	one[int](h, "update turnkeeper.agents set day_calls = 100 where name = 'clerk' returning 1")
	if page := h.ask("GET", "/", ""); strings.Contains(string(page.body), heading) {
		t.Errorf("the overview shows a normal level: %s", page.body)
	}
	one[int](h, `insert into turnkeeper.spend (scope, period, tokens, calls, level)
		values ('agent:clerk', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD'), 0, 100, 'critical') returning 1`)
	h.ask("GET", "/", "").wantPage(t, 200, heading, "clerk", "critical", "0 %", "100 of 100")
	one[int](h, `insert into turnkeeper.pinned_levels (agent, level, pinned_by, reason) values ('', 'low', 'ada', '<b>costs</b>') returning 1`)
	h.ask("GET", "/", "").wantPage(t, 200, "low", "by ada", "&lt;b&gt;costs")
}
