package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/storage/operate"
)

// wantPage fails the test unless the answer is a page with this status and these texts.
func (a answer) wantPage(t *testing.T, status int, says ...string) {
	t.Helper()
	body := string(a.body)
	if a.status != status || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Errorf("answered %d %s, want %d and a page: %s", a.status, a.header.Get("Content-Type"), status, body)
	}
	for _, text := range says {
		if !strings.Contains(body, text) {
			t.Errorf("the page does not say %q:\n%s", text, body)
		}
	}
	const csp = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	if got := a.header.Get("Content-Security-Policy"); got != csp {
		t.Errorf("the policy is %q", got)
	}
	if inline := regexp.MustCompile(`(?i)<script[^>]*>[^<]| style=|<style| on[a-z]+=|javascript:`).FindString(
		body); inline != "" {
		t.Errorf("the page has %q in it", inline)
	}
}

func (a answer) wantRedirect(t *testing.T, to string) {
	t.Helper()
	if a.status != http.StatusSeeOther || a.header.Get("Location") != to {
		t.Errorf("answered %d to %q, want 303 to %q: %s", a.status, a.header.Get("Location"), to, a.body)
	}
}

// submit sends a form like a browser on the page served at base.
func (h *env) submit(path string, form url.Values, headers ...string) answer {
	h.t.Helper()
	headers = append([]string{"Content-Type", "application/x-www-form-urlencoded", "Origin", h.base, "Sec-Fetch-Site",
		"same-origin"}, headers...)
	return h.ask("POST", path, form.Encode(), headers...)
}

// signIn signs in with a token and returns the session cookie.
func (h *env) signIn(token string, headers ...string) (cookie string) {
	h.t.Helper()
	a := h.submit("/sign-in", url.Values{"token": {strings.TrimPrefix(token, "Bearer ")},
		"next": {"/turns"}}, headers...)
	a.wantRedirect(h.t, "/turns")
	cookie, _, _ = strings.Cut(a.header.Get("Set-Cookie"), ";")
	return cookie
}

func TestPages(t *testing.T) {
	h := newEnv(t)
	h.ask("GET", "/", "").wantPage(t, 200, "No open turn", `enqueue --agent clerk`, "No live worker")
	h.ask("GET", "/turns", "").wantPage(t, 200, "No turn yet")
	h.ask("GET", "/inbox", "").wantPage(t, 200, "The inbox is empty")
	h.ask("GET", "/replies", "").wantPage(t, 200, "No reply yet")
	h.ask("GET", "/lanes", "").wantPage(t, 200, "Nothing runs or waits in a lane")
	running := h.turn("clerk", "work")
	running.say("I begin.")
	done := h.turn("desk", "say hello")
	done.finish("Hello.")
	h.ask("GET", "/", "").wantPage(t, 200, fmt.Sprintf("/turns/%d", running.id), "running", fmt.Sprintf("/turns/%d",
		done.id), "succeeded")
	h.ask("GET", "/turns?agent=desk", "").wantPage(t, 200, "desk")
	h.ask("GET", fmt.Sprintf("/turns/%d", running.id), "").wantPage(t, 200, "Cancel the turn",
		fmt.Sprintf(`data-events="/v1/turns/%d/events"`, running.id))
	h.ask("GET", fmt.Sprintf("/turns/%d", done.id), "").wantPage(t, 200, "Hello.", "say hello", "Dispatches")
	h.ask("GET", "/inbox/1", "").wantPage(t, 200, "Message 1", "work", "Cancel the message")
	h.ask("GET", "/replies", "").wantPage(t, 200, "Hello.")
	h.ask("GET", "/agents", "").wantPage(t, 200, "clerk", "desk")
	h.Exec("insert into turnkeeper.leases (lane, agent, failures) values ('desk/old', 'desk', 1)")
	h.ask("GET", "/lanes", "").wantPage(t, 200, "held", "free", "worker-1")
	h.ask("GET", "/schedules", "").wantPage(t, 200, "@daily", "Pause clerk / daily")
	h.ask("GET", "/turns/77", "").wantPage(t, 404, "There is no turn 77.")
	h.ask("GET", "/turns?state=odd", "").wantPage(t, 400, "State must be one of")
	h.ask("GET", "/nothing", "", "Accept", "text/html").wantPage(t, 404, "Unknown path: GET /openapi.json")
	h.ask("GET", "/nothing", "").want(t, 404, "unknown path: GET /openapi.json")
}

func TestAnOutageOnThePage(t *testing.T) {
	h := newEnv(t)
	one[int](h,
		"update turnkeeper.agents set models = '{p/m}', give_up_after = interval '1 day' where name = 'clerk' returning 1")
	id, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "work"})
	if err != nil {
		t.Fatal(err)
	}
	const outage = "Models that are down"
	if page := h.ask("GET", "/", ""); strings.Contains(string(page.body), outage) {
		t.Errorf("the overview tells of an outage before there is one: %s", page.body)
	}
	one[string](h, `insert into turnkeeper.model_health (model, down_since, until, failures, error_class, error)
		values ('p/m', now(), now() + interval '1 hour', 3, 'auth', 'who are you?') returning model`)
	h.ask("GET", "/", "").wantPage(t, 200, outage, "p/m", "auth", "who are you?")
	h.ask("GET", fmt.Sprintf("/inbox/%d", id), "").wantPage(t, 200, "p/m", "down")
	one[string](h,
		"update turnkeeper.model_health set down_since = null, until = null, failures = 0, error_class = '', error = '' returning model")
	if page := h.ask("GET", "/", ""); strings.Contains(string(page.body), outage) {
		t.Errorf("the overview tells of an outage that is over: %s", page.body)
	}
}

func TestListsArePaged(t *testing.T) {
	h := newEnv(t)
	for i := range 30 {
		if _, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: fmt.Sprintf("number %02d.",
			i+1)}); err != nil {
			t.Fatal(err)
		}
	}
	first := h.ask("GET", "/inbox?agent=clerk", "")
	first.wantPage(t, 200, "number 30.", "number 06.", "Next page")
	if strings.Contains(string(first.body), "number 05.") {
		t.Error("the first page has more than 25 messages")
	}
	next := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindSubmatch(first.body)
	if next == nil {
		t.Fatal("there is no next page")
	}
	second := h.ask("GET", strings.ReplaceAll(string(next[1]), "&amp;", "&"), "")
	second.wantPage(t, 200, "number 05.", "number 01.", "First page")
	if strings.Contains(string(second.body), "Next page") || strings.Contains(string(second.body), "number 06.") {
		t.Error("the second page has what it should not have")
	}
	for range 3 {
		h.dispatch("clerk").finish("done")
	}
	lanes := h.ask("GET", "/v1/lanes?limit=1", "")
	lanes.want(t, 200, `"next":1`)
	h.ask("GET", "/v1/lanes?limit=1&cursor=1", "").want(t, 200, `"items":[]`)
}

func TestSignIn(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	d := h.turn("clerk", "work")
	other := h.turn("desk", "secret work")
	full := h.token(operate.Token{Name: "full", Scopes: []string{"read", "operate"}})
	send := h.token(operate.Token{Name: "send", Scopes: []string{"send"}})
	some := h.token(operate.Token{Name: "some", Scopes: []string{"read"}, Agents: []string{"clerk"}})
	turn := fmt.Sprintf("/turns/%d", d.id)

	h.ask("GET", "/", "").wantRedirect(t, "/sign-in")
	h.ask("GET", turn, "").wantRedirect(t, "/sign-in?next="+url.QueryEscape(turn))
	h.ask("GET", "/sign-in?next=%2Fturns", "").wantPage(t, 200, `value="/turns"`, "turnctl tokens create")
	for _, next := range []string{"https://evil.example/", "//evil.example", `/\evil.example`,
		"javascript:alert(1)", ""} {
		h.ask("GET", "/sign-in?next="+url.QueryEscape(next), "").wantPage(t, 200, `name="next" value="/"`)
	}
	// A refusal keeps the address to go on to.
	to := url.Values{"token": {"tk_wrong"}, "next": {"/turns"}}
	h.submit("/sign-in", to).wantPage(t, 401, "The token is unknown", `name="next" value="/turns"`)
	to.Set("token", strings.TrimPrefix(send, "Bearer "))
	h.submit("/sign-in", to).wantPage(t, 403, "the scope read", `name="next" value="/turns"`)

	a := h.submit("/sign-in", url.Values{"token": {strings.TrimPrefix(full, "Bearer ")}, "next": {turn}})
	a.wantRedirect(t, turn)
	set := a.header.Get("Set-Cookie")
	for _, part := range []string{"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} {
		if !strings.Contains(set, part) {
			t.Errorf("the cookie %q lacks %s", set, part)
		}
	}
	if strings.Contains(set, "Secure") || strings.Contains(set, strings.TrimPrefix(full, "Bearer ")) {
		t.Errorf("the cookie is %q", set)
	}
	if set := h.submit("/sign-in", url.Values{"token": {strings.TrimPrefix(full, "Bearer ")}}, "X-Forwarded-Proto",
		"https").header.Get("Set-Cookie"); !strings.Contains(set, "; Secure") {
		t.Errorf("behind TLS the cookie is %q", set)
	}

	cookie := h.signIn(full)
	h.ask("GET", turn, "", "Cookie", cookie).wantPage(t, 200, "work", "Cancel the turn", "Sign out")
	h.ask("GET", fmt.Sprintf("/v1/turns/%d/events", d.id), "", "Cookie", cookie).want(t, 200, "items")
	// A session allows the page and reads; writes to the API need a token.
	h.ask("POST", fmt.Sprintf("/v1/turns/%d/cancel", d.id), "", "Cookie", cookie, "Origin", h.base, "Sec-Fetch-Site",
		"same-origin").want(t, 401, "a token is required")
	h.ask("GET", "/", "", "Cookie", "turnkeeper_session=ts_guess").wantRedirect(t, "/sign-in")
	h.ask("GET", "/", "", "Cookie", "turnkeeper_session="+strings.TrimPrefix(full, "Bearer ")).wantRedirect(
		t, "/sign-in")

	limited := h.signIn(some)
	h.ask("GET", turn, "", "Cookie", limited).wantPage(t, 200, "read only")
	if got := h.ask("GET", turn, "", "Cookie", limited); strings.Contains(string(got.body), "Cancel the turn") {
		t.Error("who only reads is offered a cancellation")
	}
	h.ask("GET", fmt.Sprintf("/turns/%d", other.id), "", "Cookie", limited).wantPage(t, 404, "There is no turn")
	h.ask("GET", "/turns?agent=desk", "", "Cookie", limited).wantPage(t, 403, "does not cover the agent")
	for _, path := range []string{"/", "/turns", "/inbox", "/replies", "/agents", "/lanes", "/schedules"} {
		got := h.ask("GET", path, "", "Cookie", limited)
		got.wantPage(t, 200, "clerk")
		if strings.Contains(string(got.body), "desk") || strings.Contains(string(got.body), "secret work") {
			t.Errorf("%s shows what is another agent's", path)
		}
	}

	h.submit("/sign-out", nil, "Cookie", cookie).wantRedirect(t, "/sign-in")
	h.ask("GET", turn, "", "Cookie", cookie).wantRedirect(t, "/sign-in?next="+url.QueryEscape(turn))
	if err := h.RevokeToken(t.Context(), "some"); err != nil {
		t.Fatal(err)
	}
	h.ask("GET", turn, "", "Cookie", limited).wantRedirect(t, "/sign-in?next="+url.QueryEscape(turn))
	if one[bool](h,
		"select exists (select from turnkeeper.page_sessions s where $1 like '%' || s.sha256 || '%' or s::text like '%ts\\_%')", cookie) {
		t.Error("the database has a session itself")
	}
}

func TestForms(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	d := h.turn("clerk", "work")
	reader := h.signIn(h.token(operate.Token{Name: "reader", Scopes: []string{"read"}}))
	clerk := h.signIn(h.token(operate.Token{Name: "clerk", Scopes: []string{"read", "operate"},
		Agents: []string{"clerk"}}))
	full := h.signIn(h.token(operate.Token{Name: "full", Scopes: []string{"read", "operate"}}))
	cancel, retry, finish := fmt.Sprintf("/turns/%d/cancel", d.id), fmt.Sprintf("/turns/%d/retry", d.id),
		fmt.Sprintf("/turns/%d/finish", d.id)
	reason := url.Values{"reason": {"asked <b>by</b> the sender"}}

	for _, path := range []string{cancel, retry, finish, "/inbox/1/cancel", "/scheduler/pause", "/scheduler/resume",
		"/schedules/clerk/daily/pause", "/schedules/clerk/daily/run"} {
		h.submit(path, reason).wantRedirect(t, "/sign-in")
		h.submit(path, reason, "Cookie", reader).wantPage(t, 403, "the scope &#34;operate&#34;")
		h.ask("POST", path, reason.Encode(), "Cookie", full, "Content-Type", "application/x-www-form-urlencoded",
			"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site").
			want(t, 403, "cross-origin requests")
		h.ask("POST", path, reason.Encode(), "Cookie", full, "Content-Type",
			"application/x-www-form-urlencoded").wantPage(t, 403, "programs use the API")
	}
	h.submit("/scheduler/pause", reason, "Cookie", clerk).wantPage(t, 403, "The scheduler serves all agents")
	h.submit("/schedules/desk/daily/pause", nil, "Cookie", clerk).wantPage(t, 404, "has no schedule")
	if n := one[int](h, "select count(*) from turnkeeper.requested_ends"); n != 0 {
		t.Fatalf("%d cancellations were asked for by who may not", n)
	}

	h.submit("/scheduler/pause", nil, "Cookie", full).wantPage(t, 422, "Reason must say why")
	h.submit("/scheduler/pause", reason, "Cookie", full).wantRedirect(t, "/?done=paused")
	h.ask("GET", "/?done=paused", "", "Cookie", full).wantPage(t, 200, "asked &lt;b&gt;by&lt;/b&gt; the sender",
		"no turn is dispatched", "Resume")
	h.submit("/scheduler/resume", nil, "Cookie", full).wantRedirect(t, "/?done=resumed")
	h.submit("/schedules/desk/daily/pause", nil, "Cookie", full).wantRedirect(t, "/schedules?done=schedule")
	if !one[bool](h, "select paused_at is not null from turnkeeper.schedules where agent = 'desk'") {
		t.Error("the schedule is not paused")
	}
	h.submit("/schedules/desk/daily/resume", nil, "Cookie", full).wantRedirect(t, "/schedules?done=schedule")

	h.ask("GET", fmt.Sprintf("/turns/%d", d.id), "", "Cookie", clerk).wantPage(t, 200, "Finish the turn",
		"Cancel the turn")
	h.submit(finish, url.Values{"reason": {strings.Repeat("x", 1001)}}, "Cookie", clerk).wantPage(t, 422,
		"the limit is 1000")
	h.submit(finish, reason, "Cookie", clerk).wantRedirect(t, fmt.Sprintf("/turns/%d?done=finishing", d.id))
	asked := h.ask("GET", fmt.Sprintf("/turns/%d?done=finishing", d.id), "", "Cookie", clerk)
	asked.wantPage(t, 200, "Asked to finish", "its next model call is the last one",
		"Its next model call is the last one", "asked &lt;b&gt;by&lt;/b&gt;", "Cancel the turn")
	if strings.Contains(string(asked.body), "Finish the turn") {
		t.Error("a turn that is to finish is asked again")
	}
	h.submit(cancel, reason, "Cookie", clerk).wantRedirect(t, fmt.Sprintf("/turns/%d?done=told", d.id))
	h.submit(finish, reason, "Cookie", clerk).wantPage(t, 409, "is being cancelled")
	h.ask("GET", fmt.Sprintf("/turns/%d?done=told", d.id), "", "Cookie", clerk).wantPage(t, 200,
		"the worker will end the turn", "asked &lt;b&gt;by&lt;/b&gt;")
	d.end(turnkeeper.TurnCancelled, turnkeeper.MessageCancelled, "This turn was cancelled.")
	h.ask("GET", fmt.Sprintf("/turns/%d", d.id), "", "Cookie", clerk).wantPage(t, 200, "Retry the message",
		`name="anyway"`)
	h.submit(retry, nil, "Cookie", clerk).wantPage(t, 409, "confirm in the form that this does no harm")
	h.submit(retry, url.Values{"anyway": {"yes"}}, "Cookie", clerk).wantRedirect(t, "/inbox/2?done=retried")
	h.submit("/inbox/2/cancel", nil, "Cookie", clerk).wantRedirect(t, fmt.Sprintf("/turns/%d?done=cancelled", d.id+1))
	h.submit("/inbox/2/cancel", url.Values{"reason": {strings.Repeat("x", 1001)}}, "Cookie", clerk).wantPage(t, 422,
		"the limit is 1000")
}

// TestSendingFromThePage sends messages with the form of the inbox, each accepted once, and runs a schedule.
func TestSendingFromThePage(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	reader := h.signIn(h.token(operate.Token{Name: "reader", Scopes: []string{"read"}}))
	clerk := h.signIn(h.token(operate.Token{Name: "clerk", Scopes: []string{"read", "send", "operate"},
		Agents: []string{"clerk"}}))
	said := func(agent, body, number string) url.Values {
		return url.Values{"agent": {agent}, "conversation": {" shop "}, "body": {body}, "number": {number}}
	}
	if a := h.ask("GET", "/inbox", "", "Cookie", reader); strings.Contains(string(a.body), "<textarea") {
		t.Error("who may not send is offered to")
	}
	h.ask("GET", "/inbox?agent=clerk&conversation=shop", "", "Cookie", clerk).wantPage(t, 200, "<textarea",
		`value="shop"`, `name="number"`)
	h.submit("/inbox", said("clerk", "hello", "1"), "Cookie", reader).wantPage(t, 403, "the scope &#34;send&#34;")
	h.ask("POST", "/inbox", said("clerk", "hello", "1").Encode(), "Cookie", clerk, "Content-Type",
		"application/x-www-form-urlencoded", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site").
		want(t, 403, "cross-origin requests")
	h.submit("/inbox", said("desk", "hello", "1"), "Cookie", clerk).wantPage(t, 403,
		"This token does not cover the agent &#34;desk&#34;")
	h.submit("/inbox", said("clerk", " ", "1"), "Cookie", clerk).wantPage(t, 422, "cannot be empty")
	h.submit("/inbox", said("clerk", strings.Repeat("x", 1001), "1"), "Cookie", clerk).wantPage(t, 413, "1001 bytes")
	if n := one[int](h, "select count(*) from turnkeeper.messages"); n != 0 {
		t.Fatalf("%d messages were sent by who may not", n)
	}
	h.submit("/inbox", said("clerk", "hello\r\nworld", "1"), "Cookie", clerk).wantRedirect(t, "/inbox/1?done=sent")
	h.submit("/inbox", said("clerk", "hello\r\nworld", "1"), "Cookie", clerk).wantRedirect(t, "/inbox/1?done=sent")
	if body := one[string](h,
		"select conversation || ': ' || body from turnkeeper.messages"); body != "shop: hello\nworld" {
		t.Errorf("the message is %q", body)
	}
	h.submit("/inbox", said("clerk", "hello\r\nthere", "1"), "Cookie", clerk).wantRedirect(t,
		fmt.Sprintf("/inbox/%d?done=sent", one[int](h, "select max(id) from turnkeeper.messages")))
	h.submit("/schedules/desk/daily/run", nil, "Cookie", clerk).wantPage(t, 404, "has no schedule")
	a := h.submit("/schedules/clerk/daily/run", nil, "Cookie", clerk)
	id := one[int](h,
		"select id from turnkeeper.messages where schedule = 'daily' and state = 'waiting' and body = 'look'")
	a.wantRedirect(t, fmt.Sprintf("/inbox/%d?done=ran", id))
	h.submit("/schedules/clerk/daily/run", nil, "Cookie", clerk).wantRedirect(t,
		fmt.Sprintf("/inbox/%d?done=waits", id))
	h.ask("GET", fmt.Sprintf("/inbox/%d?done=ran", id), "", "Cookie", clerk).wantPage(t, 200, "The schedule runs now",
		"/conversation?agent=clerk&amp;conversation=main")
	h.ask("GET", "/conversation?agent=clerk&conversation=shop", "", "Cookie", clerk).wantPage(t, 200, "hello\nworld",
		"No reply yet")
	h.ask("GET", "/conversation?agent=clerk&conversation=none", "", "Cookie", clerk).wantPage(t, 404,
		"has no conversation")
}

// TestListsAreSearched filters the lists of the page and the API.
func TestListsAreSearched(t *testing.T) {
	h := newEnv(t)
	first, _ := h.work("clerk", "first")
	second, _ := h.work("clerk", "second")
	for _, path := range []string{"/inbox?agent=&state=&text=first&since=", "/turns?text=first"} {
		h.ask("GET", path, "").wantPage(t, 200, `value="first"`, fmt.Sprintf(`href="/turns/%d"`, first.id))
		if a := h.ask("GET", path, ""); strings.Contains(string(a.body), fmt.Sprintf(`href="/turns/%d"`, second.id)) {
			t.Errorf("%s shows what was not asked for", path)
		}
	}
	h.ask("GET", "/inbox?text=nothing", "").wantPage(t, 200, "No message matches")
	h.ask("GET", "/turns?text=message&limit=1", "").wantPage(t, 200,
		fmt.Sprintf(`href="/turns?cursor=%d&amp;limit=1&amp;text=message"`, second.id))
	h.ask("GET", "/v1/turns?state=failed", "").want(t, 200, `{"items":[],"next":null}`)
	h.ask("GET", "/conversation?agent=clerk&conversation=main&limit=1", "").wantPage(t, 200, "reply second",
		"Earlier messages", "cursor=2", "<code>tool</code>")
	h.ask("GET", "/conversation?agent=clerk&conversation=main&cursor=2", "").wantPage(t, 200, "reply first", "Newest")
	for query, said := range map[string]string{"since=yesterday": "since must be a time",
		"until=0000-01-01": "until must be a time", "text=" + strings.Repeat("x", 1001): "text has 1001 bytes"} {
		h.ask("GET", "/v1/messages?"+query, "").want(t, 400, said)
	}
	h.turn("clerk", "third")
	h.ask("GET", "/v1/messages?text=third", "").want(t, 200, `"state":"running"`)
	h.ask("GET", "/v1/messages?since=2026-01-01T00:00:00+02:00&until=2100-01-01", "").want(t, 200, `"id":2`)
}

// TestThePageOnLoopback checks that loopback needs no sign-in, and that the cookie of another local server is ignored.
func TestThePageOnLoopback(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "work")
	h.ask("GET", "/turns", "", "Cookie", "turnkeeper_session=ts_of_another").wantPage(t, 200, "clerk")
	h.submit(fmt.Sprintf("/turns/%d/cancel", d.id), nil, "Cookie", "turnkeeper_session=ts_of_another").wantRedirect(t,
		fmt.Sprintf("/turns/%d?done=told", d.id))
	h.ask("GET", "/turns", "", "X-Forwarded-For", "203.0.113.7").wantRedirect(t, "/sign-in?next=%2Fturns")
	h.ask("GET", "/turns?token=x", "").wantPage(t, 400, "A token in the URL")
}

func TestAssets(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	for path, kind := range map[string]string{"/assets/page.css": "text/css", "/assets/page.js": "text/javascript",
		"/assets/icon.svg": "image/svg+xml"} {
		a := h.ask("GET", path, "")
		if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), kind) || a.header.Get("ETag") == "" {
			t.Errorf("%s is answered %d %v", path, a.status, a.header)
		}
		if again := h.ask("GET", path, "", "If-None-Match",
			a.header.Get("ETag")); again.status != http.StatusNotModified || len(again.body) > 0 {
			t.Errorf("%s is sent again to who has it", path)
		}
	}
}
