package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/internal/membudget"
)

func newTestSession(s Server) (*session, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	ctx, end := context.WithCancelCause(context.Background())
	return &session{
		server: s, log: zap.New(core), ctx: ctx, end: end, idle: func() {}, relist: func() {}, limits: defaultLimits(),
		progress: map[string]func(string){},
		checking: make(chan struct{}, 1),
	}, logs
}

// TestWhatAServerIsOffered checks what a client tells a server that it can do, for each setting, and who it says it is.
func TestWhatAServerIsOffered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server Server
		want   string
	}{
		"nothing":  {Server{}, ""},
		"defaults": {Server{AcceptDefaults: true}, " forms"},
		"a person": {Server{AskForInput: true}, " forms"},
		"a model":  {Server{Sampling: Sampling{Allow: true}}, " sampling"},
		"roots":    {Server{Roots: []string{"/srv/a b"}}, " roots"},
	} {
		s, logs := newTestSession(c.server)
		relisted := make(chan struct{}, 10)
		s.relist = func() { relisted <- struct{}{} }
		server := sdk.NewServer(&sdk.Implementation{Name: "s"},
			&sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true},
				Logging: &sdk.LoggingCapabilities{}}}) //nolint:staticcheck // older protocols use it
		near, far := sdk.NewInMemoryTransports()
		theirs, err := server.Connect(t.Context(), far, nil)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := s.client().Connect(t.Context(), near, &sdk.ClientSessionOptions{ProtocolVersion: legacyProtocol})
		if err != nil {
			t.Fatal(err)
		}
		p := theirs.InitializeParams()
		got := ""
		for what, holds := range map[string]bool{
			" forms":    p.Capabilities.Elicitation != nil && p.Capabilities.Elicitation.Form != nil,
			" roots":    p.Capabilities.RootsV2 != nil,  //nolint:staticcheck // older protocols use it
			" sampling": p.Capabilities.Sampling != nil, //nolint:staticcheck // older protocols use it
		} {
			if holds {
				got += what
			}
		}
		if got != c.want || p.ClientInfo.Name != "turnkeeper" || p.ClientInfo.Version != "1" {
			t.Errorf("%s: a server is offered%s, by %s %s; want%s", name, got, p.ClientInfo.Name,
				p.ClientInfo.Version, c.want)
		}
		told := make(chan string, 10)
		token, stop := s.follow(func(text string) { told <- text })
		if err := theirs.NotifyProgress(t.Context(), &sdk.ProgressNotificationParams{ProgressToken: token,
			Progress: 1.5, Total: 3, Message: " half\x00 "}); err != nil {
			t.Error(err)
		}
		if got := <-told; got != "1.5 of 3: half" {
			t.Errorf("%s: progress %q", name, got)
		}
		stop()
		server.AddTool(&sdk.Tool{Name: "new", InputSchema: map[string]any{"type": "object"}}, nil)
		<-relisted
		if len(s.progress) != 0 || logs.Len() != 0 {
			t.Errorf("%s: %d calls are followed, logged %v", name, len(s.progress), logs.All())
		}
		_ = ours.Close()
		_ = theirs.Wait()
	}
}

// TestProgressTexts checks what watchers read of a server's progress.
func TestProgressTexts(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]sdk.ProgressNotificationParams{
		"1": {Progress: 1}, "0.25 of 2": {Progress: 0.25, Total: 2}, "3: all": {Progress: 3, Total: -1, Message: "all"},
		"1000000 of 2000000: x": {Progress: 1e6, Total: 2e6, Message: "x"},
	} {
		if got := (Server{}).progressText(&p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestHowASessionEnds checks how long a session accepts calls, that running ones go on when it is retired, that it ends
// with the last of them, and that the first cause counts.
func TestHowASessionEnds(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	s, _ := newTestSession(Server{})
	if s.busy() || !s.usable() || !s.begin() || !s.begin() || !s.busy() {
		t.Error("a fresh session takes no calls")
	}
	s.retire(first)
	s.retire(second)
	if s.begin() || s.usable() || !s.busy() || s.ctx.Err() != nil {
		t.Error("a retired session takes calls, or ends those that run")
	}
	s.finish()
	if s.ctx.Err() != nil {
		t.Error("it ended while a call runs")
	}
	s.finish()
	if got := context.Cause(s.ctx); !errors.Is(got, first) || s.busy() {
		t.Errorf("after its last call it ended by %v", got)
	}
	<-s.lost()
	idle, _ := newTestSession(Server{})
	idle.retire(first)
	if got := context.Cause(idle.ctx); !errors.Is(got, first) {
		t.Errorf("retired without calls, it ended by %v", got)
	}
	ends, _ := newTestSession(Server{})
	ended := make(chan struct{})
	ends.idle = func() { close(ended) }
	ends.begin()
	ends.drop(first)
	ends.close()
	if got := context.Cause(ends.ctx); !errors.Is(got, first) || ends.begin() || ends.usable() {
		t.Errorf("dropped, it ended by %v", got)
	}
	<-ended
	closed, _ := newTestSession(Server{})
	closed.close()
	if got := context.Cause(closed.ctx); !errors.Is(got, errClosed) || !closed.leaving.Load() {
		t.Errorf("closed, it ended by %v", got)
	}
}

// TestHowOftenRequestsAreLogged checks that the first hundred requests of a server are logged for operators, and that
// all are told to those who watch its calls.
func TestHowOftenRequestsAreLogged(t *testing.T) {
	t.Parallel()
	s, logs := newTestSession(Server{AskForInput: true})
	told := [2]int{}
	for i := range told {
		_, stop := s.follow(func(text string) {
			if text != "the server "+s.whyDeclined() {
				t.Errorf("told %q", text)
			}
			told[i]++
		})
		defer stop()
	}
	for range loggedNotes + 2 {
		s.note(s.whyDeclined())
	}
	const want = "an MCP server asked for input within a call, which was declined: only a server of protocol 2026-07-28 can wait for a person"
	infos := logs.FilterLevelExact(zap.InfoLevel)
	if infos.Len() != 100 || logs.FilterMessage(want).Len() != 102 || told != [2]int{102, 102} {
		t.Errorf("%d lines of level info, %d in all, told %v", infos.Len(), logs.FilterMessage(want).Len(), told)
	}
}

// TestAServerThatDoesNotAnswerInTime checks over HTTP that a server which hangs is given up in time, and how that is
// said.
func TestAServerThatDoesNotAnswerInTime(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer server.Close()
	for range 3 {
		_, err := Probe(t.Context(), Server{Name: "h", URL: server.URL, ConnectTimeout: 20 * time.Millisecond},
			Access{}, nil)
		if !errors.Is(err, errNoAnswer) {
			t.Errorf("%v", err)
		}
	}
}

// TestWhoStillKnowsTheSession checks which refusals mean that a server has forgotten the session, and that the body can
// be read all the same.
func TestWhoStillKnowsTheSession(t *testing.T) {
	t.Parallel()
	const own, other = `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}`,
		`{"jsonrpc":"2.0","id":"7","error":{"code":1,"message":"no"}}`
	for _, c := range []struct {
		method, asks string
		status       int
		says         string
		stale        bool
	}{
		{"POST", `{"id":7}`, 400, own, false}, {"POST", `{"id":7}`, 400, other, true}, {"POST", `{"id":7}`, 404, own,
			true}, {"POST", `{"id":7}`, 422, own, false},
		{"POST", `{"id":7}`, 400, `{"id":7,"result":{}}`, true}, {"POST", `{"id":7}`, 400, "no such session", true},
		{"POST", `{"id":7}`, 400, "", true},
		{"POST", `{}`, 400, `{"error":{}}`, true}, {"POST", `no JSON`, 400, own, true}, {"GET", "", 404, "", false},
		{"DELETE", "", 404, "", false},
		{"POST", `{"id":7}`, 200, other, false}, {"POST", `{"id":7}`, 399, other, false}, {"POST", `{"id":7}`, 401,
			other, false}, {"POST", `{"id":7}`, 403, other, false},
		{"POST", `{"id":7}`, 405, other, false}, {"POST", `{"id":7}`, 408, other, false}, {"POST", `{"id":7}`, 429,
			other, false}, {"POST", `{"id":7}`, 499, other, true},
		{"POST", `{"id":7}`, 500, other, false}, {"POST", `{"id":7}`, 503, other, false},
	} {
		stale := 0
		w := &wire{base: saying{c.status, c.says}, session: t.Context(), patience: time.Minute,
			headers: map[string]string{"X-A": "b"}, limits: defaultLimits(), stale: func(code int) { stale = code }}
		ctx, trace := withTrace(t.Context())
		req, err := http.NewRequestWithContext(ctx, c.method, "http://h/", strings.NewReader(c.asks))
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(res.Body)
		if closed := res.Body.Close(); err != nil || closed != nil || string(said) != c.says ||
			res.Header.Get("X-A") != "b" || req.Header.Get("X-A") != "" {
			t.Errorf("%+v: read %q, %v, headers %v", c, said, err, res.Header)
		}
		if want := map[bool]int{true: c.status}[c.stale]; stale != want {
			t.Errorf("%+v: forgotten with status %d, want %d", c, stale, want)
		}
		if posts := c.method == "POST"; trace.sent.Load() != posts || posts && int(trace.status.Load()) != c.status {
			t.Errorf("%+v: sent %t, status %d", c, trace.sent.Load(), trace.status.Load())
		}
	}
}

// A saying transport answers each request alike, and repeats its headers.
type saying struct {
	status int
	body   string
}

func (s saying) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.status, Header: req.Header.Clone(),
		Body: io.NopCloser(strings.NewReader(s.body)), Request: req}, nil
}

// TestRedirects checks that redirects within the origin are followed, and which are refused.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"http://h:1/x": "", "http://H:1/x?y": "",
		"https://h:1/x": "redirect refused: it leads to another origin, https://h:1; if that is right, give it as the server's url",
		"http://h:2/x":  "redirect refused: it leads to another origin, http://h:2; if that is right, give it as the server's url",
		"http://h/x":    "redirect refused: it leads to another origin, http://h; if that is right, give it as the server's url",
	} {
		from, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h:1/", http.NoBody)
		between, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
		next, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
		if err := sameOrigin(next, []*http.Request{from, between}); fmt.Sprint(err) != orElse(want, "<nil>") {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// TestMemoryOfResponses checks who holds the memory of a response: its call, or without one its reader until it is
// closed; of a response that is dropped nobody.
func TestMemoryOfResponses(t *testing.T) {
	t.Parallel()
	text := `{"jsonrpc":"2.0","id":7,"result":{"text":"` + strings.Repeat("x", 1<<20) + `"}}`
	for _, c := range []struct {
		name    string
		events  bool
		call    bool
		frame   int
		reading bool // memory is held before the reader is closed
		after   bool // and after that
	}{
		{"a body of a call", false, true, 4 << 20, true, true}, {"a body", false, false, 4 << 20, true, false},
		{"a large body", false, true, 1 << 19, false, false},
		{"an event of a call", true, true, 4 << 20, true, true}, {"an event", true, false, 4 << 20, true, false},
		{"a large event", true, true, 1 << 19, false, false},
	} {
		budget := membudget.New(64<<20, 32<<20)
		l := limits{Frame: c.frame, Drop: 64 << 20, Memory: budget}
		account := budget.Account()
		ctx := t.Context()
		if c.call {
			ctx = membudget.With(ctx, account.Lease())
		}
		var body io.ReadCloser
		want := text
		if c.events {
			want = "data: " + text + "\n\n"
			body = newLargeEvents(ctx, io.NopCloser(strings.NewReader(want)), l)
		} else {
			body = &largeBody{ReadCloser: io.NopCloser(strings.NewReader(want)), ctx: ctx, limits: l,
				memory: newReadMemory(ctx, l)}
		}
		got := make([]byte, len(want))
		n, err := io.ReadFull(body, got)
		if whole := n == len(want) && string(got) == want; whole != (c.frame > len(text)) || whole && err != nil {
			t.Errorf("%s: %d bytes, %v", c.name, n, err)
		}
		if held := budget.Use().Held; (held >= 1<<20) != c.reading || !c.reading && held != 0 {
			t.Errorf("%s: when it is read, %d bytes are held", c.name, held)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		if held := budget.Use().Held; (held >= 1<<20) != c.after || !c.after && held != 0 {
			t.Errorf("%s: when it is closed, %d bytes are held", c.name, held)
		}
		account.Close()
		if held := budget.Use().Held; held != 0 {
			t.Errorf("%s: at the end of the call, %d bytes are held", c.name, held)
		}
	}
}
