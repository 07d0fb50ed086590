package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/operate"
)

// register registers an agent with this file.
func (h *env) register(name, source string, models ...string) {
	h.t.Helper()
	sum := sha256.Sum256([]byte(source))
	err := h.RegisterAgents(h.t.Context(), []turnkeeper.AgentRegistration{{
		Name: name, Definition: []byte(source), DefinitionHash: hex.EncodeToString(sum[:]), Models: models,
		Schedules: []turnkeeper.Schedule{{Agent: name, Name: "daily", Cron: "@daily", TimeZone: "UTC",
			Conversation: "main", Message: "look what is new"}},
	}})
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestAnAgent checks that the API and the page show an agent's models, tools, schedules and level, and those of no
// other.
func TestAnAgent(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	h.register("clerk",
		"---\ntools: [list_files, read_file]\nsub_agents: [desk]\nmcp_servers: {crm: [search]}\nbudget: {day_calls: 10}\n---\nYou are clerk.\n", "p/large", "p/small")
	h.register("desk", "---\nno_such_key: 1\n---\nYou are desk.\n", "p/desk-only")
	all := h.token(operate.Token{Name: "all", Scopes: []string{"read"}})
	some := h.token(operate.Token{Name: "some", Scopes: []string{"read"}, Agents: []string{"clerk"}})
	type whole struct {
		Models, Tools []string
		MCPServers    []string `json:"mcp_servers"`
		SubAgents     []string `json:"sub_agents"`
		Schedules     []struct{ Agent, Name string }
		Problem       string
	}
	a := h.ask("GET", "/v1/agents/clerk", "", "Authorization", some)
	got := decode[whole](t, a)
	if strings.Join(got.Models, " ")+", "+strings.Join(got.Tools, " ")+", "+strings.Join(got.MCPServers, " ")+", "+
		strings.Join(got.SubAgents, " ") != "p/large p/small, list_files read_file, crm, " ||
		len(got.Schedules) != 1 || got.Schedules[0].Name != "daily" || got.Problem != "" {
		t.Errorf("the agent is %s", a.body)
	}
	if whole := decode[whole](t, h.ask("GET", "/v1/agents/clerk", "", "Authorization", all)); strings.Join(
		whole.SubAgents, " ") != "desk" {
		t.Errorf("its sub-agents are %q", whole.SubAgents)
	}
	if broken := decode[whole](t, h.ask("GET", "/v1/agents/desk", "", "Authorization", all)); !strings.Contains(
		broken.Problem, "no_such_key") || len(broken.Tools) != 0 {
		t.Errorf("the agent whose file cannot be read is %+v", broken)
	}
	h.ask("GET", "/v1/agents", "", "Authorization", some).want(t, 200, `"models":["p/large","p/small"]`)
	h.ask("GET", "/v1/agents/desk", "", "Authorization", some).want(t, 404, "there is no agent")
	h.ask("GET", "/v1/agents/nobody", "", "Authorization", all).want(t, 404, "there is no agent")
	cookie := h.signIn(some)
	h.ask("GET", "/agents", "", "Cookie", cookie).wantPage(t, 200, `href="/agents/clerk"`, "p/large")
	page := h.ask("GET", "/agents/clerk", "", "Cookie", cookie)
	page.wantPage(t, 200, "p/large", "p/small", "list_files", "read_file", "crm", "look what is new", "@daily")
	if strings.Contains(string(page.body), "desk") {
		t.Errorf("a token for clerk sees the desk: %s", page.body)
	}
	h.ask("GET", "/agents/desk", "", "Cookie", cookie).wantPage(t, 404, "There is no agent")
	h.ask("GET", "/agents/desk", "", "Cookie", h.signIn(all)).wantPage(t, 200, "The definition cannot be read",
		"no_such_key")
}

// TestWebhooksOnThePage checks that the page shows webhooks with their deliveries, and marks those that fail. A token
// for some agents sees deliveries of these alone.
func TestWebhooksOnThePage(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	all := h.token(operate.Token{Name: "all", Scopes: []string{"read"}})
	some := h.signIn(h.token(operate.Token{Name: "some", Scopes: []string{"read"}, Agents: []string{"clerk"}}))
	cookie := h.signIn(all)
	h.ask("GET", "/webhooks", "", "Cookie", cookie).wantPage(t, 200, "No webhook")
	ctx := context.Background()
	for _, name := range []string{"shop", "well"} {
		if err := h.RegisterWebhook(ctx, outbox.Webhook{Name: name,
			Origin: "https://" + name + ".example"}); err != nil {
			t.Fatal(err)
		}
	}
	h.turn("clerk", "hello").finish("Hello, clerk-only-4417.")
	h.turn("desk", "hello").finish("Hello, desk.")
	if _, err := h.SeeWebhooks(ctx, []string{"shop", "well"}); err != nil {
		t.Fatal(err)
	}
	one[int](h,
		`with d as (update turnkeeper.webhook_deliveries set state = 'dead', due_at = null, attempts = 9, first_at = now(), last_at = now(), status = 500, error = 'HTTP 500 of ' || (select r.agent from turnkeeper.replies r where r.id = reply_id), duration_ms = 1
		where webhook = 'shop' returning 1) select count(*)::int from d`)
	one[int](h,
		"update turnkeeper.webhooks set failed_at = clock_timestamp(), last_error = 'HTTP 500' where name = 'shop' returning 1")
	h.ask("GET", "/v1/webhooks", "", "Authorization", all).want(t, 200, `"name":"shop","state":"failing"`)
	h.ask("GET", "/webhooks", "", "Cookie", cookie).wantPage(t, 200, `href="/webhooks/shop"`, "failing",
		"https://well.example", "active", "HTTP 500")
	h.ask("GET", "/webhooks/shop", "", "Cookie", cookie).wantPage(t, 200, "2 deliveries are dead", "HTTP 500 of clerk",
		"HTTP 500 of desk", `state bad`)
	h.ask("GET", "/webhooks/well", "", "Cookie", cookie).wantPage(t, 200, "pending", "https://well.example")
	h.ask("GET", "/webhooks/shop?state=pending", "", "Cookie", cookie).wantPage(t, 200, "No delivery matches")
	h.ask("GET", "/webhooks/none", "", "Cookie", cookie).wantPage(t, 404, "There is no webhook")
	overview := h.ask("GET", "/", "", "Cookie", cookie)
	overview.wantPage(t, 200, `href="/webhooks/shop"`, "0 pending, 2 dead")
	if strings.Contains(string(overview.body), `href="/webhooks/well"`) {
		t.Error("the overview shows a webhook that delivers")
	}
	h.ask("GET", "/webhooks", "", "Cookie", some).wantPage(t, 403, "Webhooks serve all agents")
	limited := h.ask("GET", "/webhooks/shop", "", "Cookie", some)
	limited.wantPage(t, 200, "HTTP 500 of clerk")
	for _, hidden := range []string{"desk", "shop.example", "deliveries are dead", `href="/webhooks"`} {
		if strings.Contains(string(limited.body), hidden) {
			t.Errorf("a token for clerk sees %q: %s", hidden, limited.body)
		}
	}
}

// TestFindingsOfDoctor checks that the API and the page show what doctor finds, and to a token for some agents what is
// about these.
func TestFindingsOfDoctor(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) {
		c.NeedToken, c.Mask = true, func(s string) string { return strings.ReplaceAll(s, "canary", "[redacted]") }
	})
	all := h.token(operate.Token{Name: "all", Scopes: []string{"read"}})
	some := h.token(operate.Token{Name: "some", Scopes: []string{"read"}, Agents: []string{"clerk"}})
	sends := h.token(operate.Token{Name: "sends", Scopes: []string{"send"}})
	for _, agent := range []string{"clerk", "desk"} {
		if err := h.PauseSchedule(t.Context(), agent, "daily", true, "the canary of "+agent); err != nil {
			t.Fatal(err)
		}
	}
	type diagnosis struct {
		Checks []struct{ Name, Verdict, Found, Advice, Agent string }
	}
	a := h.ask("GET", "/v1/doctor", "", "Authorization", all)
	a.want(t, 200, `"name":"workers","verdict":"warn"`)
	found := decode[diagnosis](t, a)
	last := "fail"
	for _, c := range found.Checks {
		if order := "fail warn ok"; strings.Index(order, c.Verdict) < strings.Index(order, last) {
			t.Errorf("%s comes after %s", c.Verdict, last)
		}
		last = c.Verdict
	}
	for _, want := range []string{`"name":"writable","verdict":"ok"`, `"name":"schedule desk"`, "[redacted] of desk",
		"schedules resume desk/daily"} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("%q is not in %s", want, a.body)
		}
	}
	if strings.Contains(string(a.body), "canary") {
		t.Error("a secret is shown")
	}
	limited := h.ask("GET", "/v1/doctor", "", "Authorization", some)
	if checks := decode[diagnosis](t, limited).Checks; len(checks) != 1 || checks[0].Agent != "clerk" ||
		checks[0].Name != "schedule clerk" {
		t.Errorf("a token for clerk gets %s", limited.body)
	}
	h.ask("GET", "/v1/doctor", "", "Authorization", sends).want(t, 403, "read")
	h.ask("GET", "/doctor", "", "Cookie", h.signIn(all)).wantPage(t, 200, "state warn", "the [redacted] of desk",
		"Passed", "writable")
	page := h.ask("GET", "/doctor", "", "Cookie", h.signIn(some))
	page.wantPage(t, 200, "schedule clerk", "agents that this token covers")
	if strings.Contains(string(page.body), "desk") || strings.Contains(string(page.body), "writable") {
		t.Errorf("a token for clerk sees %s", page.body)
	}
}
