package httpapi_test

import (
	"net/url"
	"strings"
	"testing"

	"turnkeeper/httpapi"
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
	h.ask("POST", "/v1/levels/pin", `{"agent":"clerk","level":"low","by":"somebody else"}`, "Authorization",
		clerks).want(t, 200, `"by":"clerks"`)
	h.ask("POST", "/v1/levels/pin", `{"level":"critical"}`, "Authorization", all).want(t, 200, `"by":"all"`)
	h.ask("GET", "/v1/levels", "", "Authorization", all).want(t, 200, `"level":"critical"`)
}

// TestTheAuthorOfAPinForAll checks that a token for some agents does not learn who pinned the level of all.
func TestTheAuthorOfAPinForAll(t *testing.T) {
	h := newEnv(t)
	one[int](h, "update turnkeeper.agents set day_calls = 100 returning 1")
	clerks := h.token(operate.Token{Name: "clerks", Scopes: []string{"read"}, Agents: []string{"clerk"}})
	all := h.token(operate.Token{Name: "all", Scopes: []string{"read", "operate"}})
	h.ask("POST", "/v1/levels/pin", `{"level":"low","reason":"it is expensive today"}`, "Authorization", all).want(t,
		200, `"by":"all"`)
	cookie := h.signIn(clerks)
	for _, path := range []string{"/v1/levels", "/v1/agents/clerk", "/v1/doctor", "/", "/agents/clerk", "/doctor"} {
		headers := []string{"Authorization", clerks}
		if !strings.HasPrefix(path, "/v1") {
			headers = []string{"Cookie", cookie}
		}
		seen := h.ask("GET", path, "", headers...)
		if text := string(seen.body); seen.status != 200 || !strings.Contains(text, "it is expensive today") ||
			strings.Contains(text, `"by":"all"`) || strings.Contains(text, "by all") || strings.Contains(text,
			"by <strong>all") {
			t.Errorf("%s is answered %d %s", path, seen.status, text)
		}
	}
	h.ask("GET", "/v1/agents/clerk", "", "Authorization", all).want(t, 200, `"by":"all"`)
	h.ask("POST", "/v1/levels/pin", `{"agent":"clerk","level":"critical"}`, "Authorization", all).want(t,
		200, `"by":"all"`)
	h.ask("GET", "/v1/levels", "", "Authorization", clerks).want(t, 200, `"by":"all"`) // the pin of its own agent
}

// TestPinningOnThePage pins and unpins the survival level of an agent with the forms of its page.
func TestPinningOnThePage(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	one[int](h, "update turnkeeper.agents set day_calls = 100 returning 1")
	reader := h.signIn(h.token(operate.Token{Name: "reader", Scopes: []string{"read"}}))
	clerk := h.signIn(h.token(operate.Token{Name: "ada", Scopes: []string{"read", "operate"},
		Agents: []string{"clerk"}}))
	const pin, unpin = "/agents/clerk/level/pin", "/agents/clerk/level/unpin"
	low := url.Values{"level": {"low"}, "for": {"4h"}, "reason": {"<b>costs</b>"}, "by": {"somebody else"}}
	for _, path := range []string{pin, unpin} {
		h.submit(path, low).wantRedirect(t, "/sign-in")
		h.submit(path, low, "Cookie", reader).wantPage(t, 403, "the scope &#34;operate&#34;")
		h.ask("POST", path, low.Encode(), "Cookie", clerk, "Content-Type", "application/x-www-form-urlencoded",
			"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site").
			want(t, 403, "cross-origin requests")
		h.ask("POST", path, low.Encode(), "Cookie", clerk, "Content-Type",
			"application/x-www-form-urlencoded").wantPage(t, 403, "programs use the API")
	}
	h.submit("/agents/desk/level/pin", low, "Cookie", clerk).wantPage(t, 404, "There is no agent")
	h.submit("/agents/desk/level/unpin", nil, "Cookie", clerk).wantPage(t, 404, "There is no agent")
	h.submit(pin, url.Values{"level": {""}}, "Cookie", clerk).wantPage(t, 422,
		"Level must be one of normal, low, critical")
	for _, lasts := range []string{"soon", "-1h", "0s"} {
		h.submit(pin, url.Values{"level": {"low"}, "for": {lasts}}, "Cookie", clerk).wantPage(t, 422,
			"For must be a duration")
	}
	h.submit(pin, url.Values{"level": {"low"}, "for": {"9000h"}}, "Cookie", clerk).wantPage(t, 422,
		"A pin lasts at most 366 days")
	if n := one[int](h, "select count(*) from turnkeeper.pinned_levels"); n != 0 {
		t.Fatalf("%d levels were pinned by who may not", n)
	}
	if page := string(h.ask("GET", "/agents/clerk", "", "Cookie", reader).body); strings.Contains(page,
		"<form method=\"post\" action=\"/agents") {
		t.Error("who only reads is offered a pin")
	}
	if page := string(h.ask("GET", "/agents/clerk", "", "Cookie", clerk).body); !strings.Contains(page, pin) ||
		strings.Contains(page, unpin) {
		t.Error("without a pin the page offers to end it, or no pin")
	}
	h.submit(pin, low, "Cookie", clerk).wantRedirect(t, "/agents/clerk?done=pinned")
	h.ask("GET", "/agents/clerk?done=pinned", "", "Cookie", clerk).wantPage(t, 200, "The survival level is pinned",
		"by <strong>ada</strong>", "&lt;b&gt;costs", unpin)
	if row := one[string](h,
		"select agent || ' ' || level || ' ' || pinned_by || ' ' || date_trunc('second', until - pinned_at) from turnkeeper.pinned_levels"); row != "clerk low ada 04:00:00" {
		t.Errorf("the pin is %q", row)
	}
	h.submit(unpin, nil, "Cookie", clerk).wantRedirect(t, "/agents/clerk?done=unpinned")
	if n := one[int](h, "select count(*) from turnkeeper.pinned_levels"); n != 0 {
		t.Error("the pin is still there")
	}
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
	one[int](h,
		`insert into turnkeeper.pinned_levels (agent, level, pinned_by, reason) values ('', 'low', 'ada', '<b>costs</b>') returning 1`)
	h.ask("GET", "/", "").wantPage(t, 200, "low", "by ada", "&lt;b&gt;costs")
}
