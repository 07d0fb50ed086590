package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/httpapi"
	"turnkeeper/storage/operate"
)

func TestTokens(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	h.turn("clerk", "a").finish("a")
	h.turn("desk", "b").finish("b")
	all := h.token(operate.Token{Name: "all", Scopes: everything})
	send := h.token(operate.Token{Name: "send", Scopes: []string{"send"}, Agents: []string{"clerk"}})
	read := h.token(operate.Token{Name: "read", Scopes: []string{"read"}, Agents: []string{"clerk"}})
	ghost := h.token(operate.Token{Name: "ghost", Scopes: []string{"send"}, Agents: []string{"ghost"}})
	several := h.token(operate.Token{Name: "several", Scopes: []string{"read", "operate"},
		Agents: []string{"clerk", "desk"}})
	expired := h.token(operate.Token{Name: "expired", Scopes: []string{"read"}, Lifetime: time.Microsecond})
	hello, toDesk := `{"agent":"clerk","body":"hello"}`, `{"agent":"desk","body":"hello"}`
	tests := []struct {
		name, token, method, path, body string
		status                          int
		text                            string
	}{
		{"no token", "", "GET", "/v1/turns", "", 401, "a token is required"},
		{"a false one", "Bearer tk_false", "GET", "/v1/turns", "", 401, "unknown"},
		{"another scheme", "Basic eDp5", "GET", "/v1/turns", "", 401, "must be: Bearer TOKEN"},
		{"an expired one", expired, "GET", "/v1/turns", "", 401, "has expired"},
		{"in the URL", "", "GET", "/v1/turns?access_token=x", "", 400, "a token in the URL"},
		{"all", all, "GET", "/v1/turns", "", 200, `"agent":"desk"`},
		{"send may send", send, "POST", "/v1/messages", hello, 201, "hello"},
		{"send to another agent", send, "POST", "/v1/messages", toDesk, 403, "does not cover the agent"},
		{"send to an agent that there is not", ghost, "POST", "/v1/messages", `{"agent":"ghost","body":"boo"}`, 422,
			"unknown agent \\\"ghost\\\"\"}"},
		{"send may see its message", send, "GET", "/v1/messages/1", "", 200, `"reply":{`},
		{"send may not see another's", send, "GET", "/v1/messages/2", "", 404, "there is no message 2"},
		{"send may not read", send, "GET", "/v1/turns", "", 403, "the scope \\\"read\\\""},
		{"read may not operate", read, "POST", "/v1/scheduler/resume", "", 403, "the scope \\\"operate\\\""},
		{"read sees its turn", read, "GET", "/v1/turns/1", "", 200, `"agent":"clerk"`},
		{"read sees no other", read, "GET", "/v1/turns/2", "", 404, "there is no turn 2"},
		{"read sees no other's events", read, "GET", "/v1/turns/2/events", "", 404, "there is no turn 2"},
		{"read asks for another agent", read, "GET", "/v1/turns?agent=desk", "", 403, "does not cover the agent"},
		{"several agents must be named", several, "GET", "/v1/outbox", "", 400, "choose one with agent=NAME"},
		{"several agents", several, "GET", "/v1/outbox?agent=desk", "", 200, `"body":"b"`},
		{"the scheduler is for all", several, "POST", "/v1/scheduler/resume", "", 403, "serves all agents"},
		{"health needs none", "", "GET", "/healthz", "", 200, "ok"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			headers := []string{}
			if test.token != "" {
				headers = append(headers, "Authorization", test.token)
			}
			a := h.ask(test.method, test.path, test.body, headers...)
			a.want(t, test.status, test.text)
			if a.status == 401 && test.token == "" && a.header.Get("WWW-Authenticate") == "" {
				t.Error("the answer does not say what it wants")
			}
		})
	}
	list := decode[struct{ Items []struct{ Agent string } }](t, h.ask("GET", "/v1/turns", "", "Authorization", read))
	for _, turn := range list.Items {
		if turn.Agent != "clerk" {
			t.Errorf("a token for clerk lists a turn of %s", turn.Agent)
		}
	}
	if one[bool](h, "select last_used_at is null from turnkeeper.api_tokens where name = 'read'") {
		t.Error("it is not on record that the token was used")
	}
	if one[bool](h,
		"select exists (select from turnkeeper.api_tokens a where $1 like '%' || a.sha256 || '%' or a::text like '%tk\\_%')", read) {
		t.Error("the database has a token itself")
	}
	if err := h.RevokeToken(t.Context(), "read"); err != nil {
		t.Fatal(err)
	}
	h.ask("GET", "/v1/turns", "", "Authorization", read).want(t, 401, "unknown")
}

func TestATokenIsHeldToItsScopesOnLoopback(t *testing.T) {
	h := newEnv(t)
	send := h.token(operate.Token{Name: "send", Scopes: []string{"send"}})
	h.ask("GET", "/v1/turns", "", "Authorization", send).want(t, 403, "scope")
	h.ask("GET", "/v1/turns", "", "Authorization", "Bearer no").want(t, 401, "unknown")
	h.ask("GET", "/v1/turns", "").want(t, 200, "items")
	h.ask("POST", "/v1/messages", `{"agent":"clerk","body":"hello"}`, "X-Forwarded-For", "203.0.113.7", "Authorization",
		send).want(t, 201, "hello")
}

// TestOnLoopbackThisMachineNeedsNoToken checks that without need_token only requests through a proxy need a token.
func TestOnLoopbackThisMachineNeedsNoToken(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.WarnLevel)
	handler := httpapi.New(httpapi.Config{Hosts: []string{"listens.here"}, Log: zap.New(core)}).Handler()
	tests := []struct {
		host, proto, header string
		status              int // 404: admitted, but metrics are not served
	}{
		{"localhost", "HTTP/1.1", "", 404},
		{"localhost:8722", "HTTP/1.1", "", 404},
		{"LocalHost.", "HTTP/1.1", "", 404},
		{"127.0.0.1:8722", "HTTP/1.1", "", 404},
		{"127.8.9.1", "HTTP/1.1", "", 404},
		{"[::1]:8722", "HTTP/1.1", "", 404},
		{"[::ffff:127.0.0.1]", "HTTP/1.1", "", 404},
		{"Listens.Here:8722", "HTTP/1.1", "", 404},
		{"localhost", "HTTP/2.0", "", 404},
		{"localhost", "HTTP/1.1", "X-Request-Id", 404},
		{"localhost", "HTTP/1.1", "User-Agent", 404},
		{"192.0.2.7", "HTTP/1.1", "", 401},
		{"[2001:db8::1]:8722", "HTTP/1.1", "", 401},
		{"10.0.0.1", "HTTP/1.1", "", 401},
		{"0.0.0.0:8722", "HTTP/1.1", "", 401},
		{"126.0.0.1", "HTTP/1.1", "", 401},
		{"other.here", "HTTP/1.1", "", 421},
		{"localhost.other", "HTTP/1.1", "", 421},
		{"127.0.0.1.other", "HTTP/1.1", "", 421},
		{"localhost", "HTTP/1.0", "", 401}, // as nginx sends by default, without forwarding headers
		{"localhost", "HTTP/1.1", "Forwarded", 401},
		{"localhost", "HTTP/1.1", "X-Forwarded-For", 401},
		{"localhost", "HTTP/1.1", "X-Forwarded-Host", 401},
		{"localhost", "HTTP/1.1", "x-forwarded-proto", 401},
		{"localhost", "HTTP/1.1", "X-Real-IP", 401},
		{"localhost", "HTTP/1.1", "Via", 401},
		{"localhost", "HTTP/1.1", "CF-Connecting-IP", 401},
		{"localhost", "HTTP/1.1", "True-Client-IP", 401},
		{"localhost", "HTTP/1.1", "X-Envoy-External-Address", 401},
		{"localhost", "HTTP/1.1", "X-Amzn-Trace-Id", 401},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.host, test.proto, test.header), func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			req.Host, req.Proto = test.host, test.proto
			req.ProtoMajor, req.ProtoMinor = int(test.proto[5]-'0'), int(test.proto[7]-'0')
			if test.header != "" {
				req.Header.Set(test.header, "")
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			if w.Code != test.status {
				t.Errorf("answered %d %s, want %d", w.Code, w.Body, test.status)
			}
		})
	}
	if n := logs.FilterMessageSnippet("set allowed_hosts").Len(); n != 1 {
		t.Errorf("%d lines say what to set", n)
	}
}

func TestHostsAndOrigins(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Hosts = []string{"turns.example"} })
	hello := `{"agent":"clerk","body":"hello"}`
	tests := []struct {
		name    string
		headers []string
		status  int
		text    string
	}{
		{"a name that was made to point here", []string{"Host", "evil.example:8722"}, http.StatusMisdirectedRequest,
			"host name is not allowed"},
		{"a name of the settings", []string{"Host", "Turns.Example:8722"}, 201, "hello"},
		{"localhost", []string{"Host", "localhost"}, 201, "hello"},
		{"an address of version 6", []string{"Host", "[::1]:8722"}, 201, "hello"},
		{"a page of another origin", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403,
			"cross-origin requests"},
		{"an old browser's", []string{"Origin", "https://evil.example"}, 403, "cross-origin requests"},
		{"a page of ours", []string{"Origin", h.base, "Sec-Fetch-Site", "same-origin"}, 201, "hello"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h.ask("POST", "/v1/messages", hello, test.headers...).want(t, test.status, test.text)
		})
	}
}

func TestTheRateIsBounded(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Rate = 3 })
	token := h.token(operate.Token{Name: "t", Scopes: []string{"read"}})
	d := h.turn("clerk", "talk")
	d.finish("said")
	path := fmt.Sprintf("/v1/turns/%d/events", d.id)
	h.untilRefused()
	for range 6 { // more than the rate limit allows
		w := &watcher{base: h.base, seen: []int64{1}}
		if err := w.watch(t.Context(), path, 0); err != nil {
			t.Errorf("a stream was refused for good: %v", err)
		}
	}
	h.ask("GET", "/v1/agents", "", "Authorization", token).want(t, 200, "clerk")
	h.ask("GET", "/healthz", "").want(t, 200, "ok")

	h.untilRefused("Authorization", "Bearer tk_guess")
}

// untilRefused sends bursts of requests, above every rate limit used here, until one is refused with 429.
func (h *env) untilRefused(headers ...string) {
	h.t.Helper()
	var refused atomic.Bool
	ctx, stop := context.WithTimeout(h.t.Context(), time.Minute)
	defer stop()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for !refused.Load() && ctx.Err() == nil {
				if a := h.ask("GET", "/v1/agents", "", headers...); a.status == http.StatusTooManyRequests {
					refused.Store(true)
					a.want(h.t, 429, "too many requests: the limit is")
					if a.header.Get("Retry-After") == "" {
						h.t.Error("the answer does not say when to come again")
					}
				}
			}
		})
	}
	clients.Wait()
	if !refused.Load() {
		h.t.Error("nothing was refused")
	}
}

// TestGuessesOfOthersAtTheSameAddress checks that wrong guesses do not block known tokens from the same address, as
// clients behind one proxy share it.
func TestGuessesOfOthersAtTheSameAddress(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Rate, c.NeedToken = 5, true })
	token := h.token(operate.Token{Name: "t", Scopes: []string{"read"}})
	session := h.signIn(token)
	h.ask("GET", "/v1/agents", "", "Authorization", token).want(t, 200, "clerk")
	h.ask("GET", "/v1/agents", "", "Cookie", session).want(t, 200, "clerk")
	for h.ask("GET", "/v1/agents", "", "Authorization", "Bearer tk_guess").status != http.StatusTooManyRequests {
		continue
	}
	for name, value := range map[string]string{"Authorization": token, "Cookie": session} {
		if a := h.ask("GET", "/v1/agents", "", name, value); a.status != 200 {
			t.Errorf("who is known by %s is answered %d %s", name, a.status, a.body)
		}
	}
}

// TestAdviceIsNotMasked checks that constant advice is not masked, and that other text is.
func TestAdviceIsNotMasked(t *testing.T) {
	t.Parallel()
	handler := httpapi.New(httpapi.Config{Mask: func(string) string { return "[redacted]" }}).Handler()
	tests := []struct {
		name, method, path, body string
		headers                  []string
		want                     string
	}{
		{"no token", "GET", "/v1/turns", "", []string{"Via", "proxy"},
			"a token is required: send Authorization: Bearer TOKEN; \"turnctl tokens create\" creates one"},
		{"another scheme", "GET", "/v1/turns", "", []string{"Authorization", "Basic eDp5"},
			"the header Authorization must be: Bearer TOKEN"},
		{"of the Responses API", "GET", "/v1/models", "", []string{"Authorization", "Basic eDp5"},
			"the header Authorization must be: Bearer TOKEN"},
		{"on the page", "GET", "/turns", "", []string{"Authorization", "Basic eDp5", "Accept", "text/html"}, "sign-in"},
		{"on the page, in the URL", "GET", "/turns?token=x", "", []string{"Accept", "text/html"},
			"send it as Authorization: Bearer TOKEN"},
		{"in the URL", "GET", "/v1/turns?token=x", "", nil, "send it as Authorization: Bearer TOKEN"},
		{"what the client wrote", "POST", "/v1/messages", `{"secret":1}`, []string{"Content-Type", "application/json"},
			"[redacted]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader(test.body))
			req.Host = "localhost"
			for i := 0; i < len(test.headers); i += 2 {
				req.Header.Set(test.headers[i], test.headers[i+1])
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			text := w.Header().Get("Location") + w.Body.String()
			if got := strings.ReplaceAll(text, `\"`, `"`); !strings.Contains(got, test.want) || strings.Contains(got,
				"redacted") != (test.want == "[redacted]") {
				t.Errorf("answered %d %s, want %q", w.Code, got, test.want)
			}
		})
	}
}
