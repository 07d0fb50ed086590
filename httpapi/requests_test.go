package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

func TestRetryOfAllThatFailed(t *testing.T) {
	h := newEnv(t)
	for _, agent := range []string{"clerk", "desk"} {
		h.turn(agent, "work").failForGood()
	}
	const path = "/v1/messages/retry"
	agents := func(body string) (of []string) {
		t.Helper()
		a := h.ask("POST", path, body)
		a.want(t, 200, "")
		for _, r := range decode[struct{ Retried []struct{ Agent string } }](t, a).Retried {
			of = append(of, r.Agent)
		}
		return of
	}
	h.ask("POST", path, `{"state":"failed","since":"-1h"}`).want(t, 422, "must be a duration")
	h.ask("POST", path, `{"state":"failed","error_class":"Auth"}`).want(t, 422,
		"it must be one of rate_limited, overloaded, ")
	if of := agents(`{"state":"failed","since":"0s"}`); len(of) != 0 {
		t.Errorf("since now, messages of %v are retried", of)
	}
	if of := agents(`{"state":"failed","agent":"desk"}`); len(of) != 1 || of[0] != "desk" {
		t.Errorf("messages of %v are retried, want only desk's", of)
	}
	if of := agents(`{"state":"failed"}`); len(of) != 1 || of[0] != "clerk" {
		t.Errorf("messages of %v are retried, want only clerk's, as desk's is retried already", of)
	}
}

// purgedStore returns ErrNotFound for messages.
type purgedStore struct{ httpapi.Store }

func (purgedStore) FindMessages(context.Context, operate.Search) ([]waiting.Message, int64, error) {
	return nil, 0, turnkeeper.ErrNotFound
}

func TestRowsThatArePurgedWhileTheyAreRead(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Store = purgedStore{c.Store} })
	h.ask("GET", "/v1/messages", "").want(t, 404, "nothing has this id")
}

// modelsAway cannot list models.
type modelsAway struct{ httpapi.Store }

func (modelsAway) Models(context.Context) ([]modelhealth.Health, error) { return nil, errAway }

func TestModelsThatCannotBeRead(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken, c.Store = true, modelsAway{c.Store} })
	for name, agents := range map[string][]string{"clerk": {"clerk"}, "all": nil} {
		token := h.token(operate.Token{Name: name, Scopes: everything, Agents: agents})
		h.ask("GET", "/v1/model-health", "", "Authorization", token).want(t, 503, "")
	}
}

func TestConditionsOfLists(t *testing.T) {
	h := newEnv(t)
	h.ask("GET", "/v1/messages?text="+strings.Repeat("x", 1000), "").want(t, 200, "")
	h.ask("GET", "/v1/messages?text="+strings.Repeat("x", 1001), "").want(t, 400, "the limit is 1000")
	h.ask("GET", "/v1/transcript?agent=clerk&conversation=main", "").want(t, 200, "")
	h.ask("GET", "/v1/transcript?agent=clerk", "").want(t, 400, "a transcript needs agent=NAME and conversation=NAME")
	h.ask("GET", "/v1/transcript?conversation=main", "").want(t, 400,
		"a transcript needs agent=NAME and conversation=NAME")
	h.ask("GET", "/v1/transcript?limit=none", "").want(t, 400, "limit")
}

// TestABodyThatEndsTooSoon checks that a body shorter than its Content-Length is refused.
func TestABodyThatEndsTooSoon(t *testing.T) {
	h := newEnv(t)
	h.ask("POST", "/v1/messages", " ").want(t, 400, "unexpected end")
	h.ask("POST", "/v1/messages", `{"agent":"clerk"`).want(t, 400, "unexpected end")
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(h.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const body = `{"agent":"clerk","body":"hello"}`
	_, err = fmt.Fprintf(conn,
		"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body)+1, body)
	if err == nil {
		err = conn.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn) // wait until the server has handled it
	if n := one[int](h, "select count(*) from turnkeeper.messages"); n != 0 {
		t.Errorf("%d messages were accepted", n)
	}
}

func TestAPartOfThePathIsNoQueryParameter(t *testing.T) {
	h := newEnv(t)
	h.turn("clerk", "work")
	h.ask("GET", "/v1/turns/1?id=1", "").want(t, 400, `unknown parameter \"id\"`)
}

func TestATokenRetriesOnlyMessagesOfItsAgents(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	for _, agent := range []string{"clerk", "desk"} {
		h.turn(agent, "work").failForGood()
	}
	clerk := h.token(operate.Token{Name: "clerk", Scopes: everything, Agents: []string{"clerk"}})
	both := h.token(operate.Token{Name: "both", Scopes: everything, Agents: []string{"clerk", "desk"}})
	all := h.token(operate.Token{Name: "all", Scopes: everything})
	const path = "/v1/messages/retry"
	h.ask("POST", path, `{"state":"failed","agent":"desk"}`, "Authorization", clerk).want(t, 404, "")
	if a := h.ask("POST", path, `{"state":"failed","agent":"clerk"}`, "Authorization", both); strings.Contains(
		string(a.body), "desk") || !strings.Contains(string(a.body), "clerk") {
		t.Errorf("of clerk's messages, %s is retried", a.body)
	}
	h.turn("clerk", "more work").failForGood()
	if a := h.ask("POST", path, `{"state":"failed"}`, "Authorization", clerk); strings.Contains(string(a.body),
		"desk") || !strings.Contains(string(a.body), "clerk") {
		t.Errorf("a token for clerk retries %s", a.body)
	}
	if a := h.ask("POST", path, `{"state":"failed"}`, "Authorization", all); !strings.Contains(string(a.body), "desk") {
		t.Errorf("a token for all agents retries %s", a.body)
	}
}

func TestATokenSeesOnlyModelsOfItsAgents(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	for agent, models := range map[string][]string{"maker": {"p/both", "p/maker"}, "other": {"p/both", "p/other"}} {
		err := h.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{{Name: agent, Definition: []byte("x"),
			DefinitionHash: strings.Repeat("a", 64), Models: models}})
		if err != nil {
			t.Fatal(err)
		}
	}
	type list struct {
		Items []struct {
			Model  string
			Agents []string
		}
	}
	for _, c := range []struct {
		token  string
		agents []string // nil: all
		want   string
	}{
		{"maker", []string{"maker"}, "[{p/both [maker]} {p/maker [maker]}]"},
		{"all", nil, "[{p/both [maker other]} {p/maker [maker]} {p/other [other]}]"},
	} {
		token := h.token(operate.Token{Name: c.token, Scopes: everything, Agents: c.agents})
		if got := fmt.Sprint(decode[list](t, h.ask("GET", "/v1/model-health", "", "Authorization",
			token)).Items); got != c.want {
			t.Errorf("a token for %v sees %s, want %s", c.agents, got, c.want)
		}
	}
}

// A schedule that the agent's file no longer has cannot be run.
func TestAnEndedScheduleIsNotRun(t *testing.T) {
	h := newEnv(t)
	one[int](h,
		"with ended as (update turnkeeper.schedules set active = false where agent = 'clerk' returning 1) select count(*) from ended")
	h.ask("POST", "/v1/schedules/clerk/daily/run", "").want(t, 409,
		"schedule clerk/daily has ended: the file of agent clerk no longer has it")
	h.ask("POST", "/v1/schedules/clerk/hourly/run", "").want(t, 404, "")
	if n := one[int](h, "select count(*) from turnkeeper.messages"); n != 0 {
		t.Errorf("%d messages were enqueued", n)
	}
}
