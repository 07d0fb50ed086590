package httpapi_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

// A faulty store fails one of its methods after a number of successful calls.
type faulty struct {
	httpapi.Store
	mu     sync.Mutex
	method string
	calls  int        // number of calls that succeed first
	once   bool       // fail only once
	read   chan int64 // receives the position after which a page of events is read
}

func (f *faulty) fail(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if method != f.method {
		return nil
	}
	if f.calls--; f.calls >= 0 {
		return nil
	}
	if f.once {
		f.method = ""
	}
	return errAway
}

// from makes a method fail after the given number of calls.
func (f *faulty) from(method string, calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.method, f.calls = method, calls
}

func (f *faulty) WhoseTurn(ctx context.Context, id turnkeeper.TurnID) (turnkeeper.ConversationKey, error) {
	if err := f.fail("WhoseTurn"); err != nil {
		return turnkeeper.ConversationKey{}, err
	}
	return f.Store.WhoseTurn(ctx, id)
}

func (f *faulty) FindOutput(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error) {
	if err := f.fail("FindOutput"); err != nil {
		return turnkeeper.Output{}, err
	}
	return f.Store.FindOutput(ctx, id)
}

func (f *faulty) Message(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error) {
	if err := f.fail("Message"); err != nil {
		return waiting.Message{}, err
	}
	return f.Store.Message(ctx, id)
}

func (f *faulty) ReplyTo(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Reply, error) {
	if err := f.fail("ReplyTo"); err != nil {
		return turnkeeper.Reply{}, err
	}
	return f.Store.ReplyTo(ctx, id)
}

func (f *faulty) ViewTurn(ctx context.Context, id turnkeeper.TurnID) (operate.TurnView, error) {
	if err := f.fail("ViewTurn"); err != nil {
		return operate.TurnView{}, err
	}
	return f.Store.ViewTurn(ctx, id)
}

func (f *faulty) Ask(ctx context.Context, id asks.ID) (operate.Ask, error) {
	if err := f.fail("Ask"); err != nil {
		return operate.Ask{}, err
	}
	return f.Store.Ask(ctx, id)
}

// Events fails only lookups of a single event; streams read more than one.
func (f *faulty) Events(ctx context.Context, turn turnkeeper.TurnID, after int64,
	limit int) ([]turnkeeper.Event, error) {
	if limit == 1 {
		if err := f.fail("Events"); err != nil {
			return nil, err
		}
		return f.Store.Events(ctx, turn, after, limit)
	}
	select {
	case f.read <- after:
	default:
	}
	return f.Store.Events(ctx, turn, after, limit)
}

// TestTheStoreFails fails each method of the store in turn and expects a 503 each time.
func TestTheStoreFails(t *testing.T) {
	store := &faulty{}
	h := newEnv(t, func(c *httpapi.Config) { store.Store, c.Store = c.Store, store })
	d, output := h.work("clerk", "text")
	h.turn("desk", "open")
	clerk := h.token(operate.Token{Name: "clerk", Scopes: everything, Agents: []string{"clerk"}})
	both := h.token(operate.Token{Name: "both", Scopes: everything})
	for _, c := range []struct {
		method string
		calls  int
		path   string
		token  string
	}{
		{"WhoseTurn", 0, fmt.Sprintf("/v1/turns/%d", d.id), clerk},
		{"Ask", 0, "/v1/asks/1", both},
		{"Message", 0, "/v1/messages/1", clerk},
		{"FindOutput", 0, "/v1/outputs/" + string(output), clerk},
		{"ReplyTo", 0, "/v1/messages/2", both},
		{"Message", 1, "/v1/messages/2?wait=1ms", both},
	} {
		store.from(c.method, c.calls)
		a := h.ask("GET", c.path, "", "Authorization", c.token)
		if a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), "the request failed") {
			t.Errorf("%s fails after %d calls: %s is answered %d %s", c.method, c.calls, c.path, a.status, a.body)
		}
	}
}

// streamFrom opens a stream after an event and returns its status.
func (h *env) streamFrom(id turnkeeper.TurnID, after int64, meanwhile func()) int {
	h.t.Helper()
	ctx, leave := context.WithCancel(h.t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/v1/turns/%d/events", h.base, id), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", fmt.Sprint(after))
	resp, err := client.Do(req) // returns when the stream has started
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	meanwhile()
	return resp.StatusCode
}

// TestWhereAStreamBegins checks that a failed read of the turn neither moves the start of a stream nor ends the stream.
func TestWhereAStreamBegins(t *testing.T) {
	store := &faulty{once: true, read: make(chan int64, 1)}
	h := newEnv(t, func(c *httpapi.Config) { store.Store, c.Store = c.Store, store })
	d, _ := h.work("clerk", "text")
	last := one[int64](h, "select last_seq from turnkeeper.turns_now where id = $1", d.id)
	const ahead = 1 << 40
	for _, c := range []struct {
		fails  string
		after  int64
		status int
	}{
		{"", last, http.StatusNoContent},
		{"", ahead, http.StatusNoContent},
		{"ViewTurn", ahead, http.StatusOK},
		{"Events", last, http.StatusOK},
	} {
		store.from(c.fails, 0)
		status := h.streamFrom(d.id, c.after, func() {
			if c.fails != "ViewTurn" {
				return
			}
			if after := <-store.read; after != ahead {
				t.Errorf("where the newest event is not known, events are read after %d", after)
			}
		})
		if status != c.status {
			t.Errorf("after %d, where %q fails: answered %d, want %d", c.after, c.fails, status, c.status)
		}
	}
}

func TestWhatIsNoStream(t *testing.T) {
	h := newEnv(t)
	d, _ := h.work("clerk", "text")
	h.ask("GET", "/v1/turns/77/events", "", "Accept", "text/event-stream").want(t, http.StatusNotFound,
		"there is no turn 77")
	a := h.ask("HEAD", fmt.Sprintf("/v1/turns/%d/events", d.id), "", "Accept", "text/event-stream")
	if kind := a.header.Get("Content-Type"); a.status != http.StatusOK || kind != "application/json" {
		t.Errorf("the head is answered %d %s", a.status, kind)
	}
}

// unread is a response writer whose client is gone: writes fail.
type unread struct{ *httptest.ResponseRecorder }

func (unread) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestAnswersThatAreNotRead checks that a response that cannot be written is tried once, and that an error response is
// logged.
func TestAnswersThatAreNotRead(t *testing.T) {
	core, logged := observer.New(zap.DebugLevel)
	h := newEnv(t)
	handler := httpapi.New(httpapi.Config{Store: h.Store, Log: zap.New(core)}).Handler()
	for _, c := range []struct {
		path   string
		status int
		reads  bool
		want   string
	}{
		{"/v1/nothing", 404, true, ""},
		{"/v1/nothing", 404, false, "could not write an error response"},
		{"/v1/models", 200, true, ""},
		{"/v1/models", 200, false, ""},
	} {
		recorder := httptest.NewRecorder()
		var w http.ResponseWriter = recorder
		if !c.reads {
			w = unread{recorder}
		}
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+c.path, nil))
		var said []string
		for _, entry := range logged.TakeAll() {
			said = append(said, entry.Message)
		}
		if got := strings.Join(said, ", "); recorder.Code != c.status || got != c.want {
			t.Errorf("%s, read %v: answered %d, and %q is logged; want %d and %q", c.path, c.reads, recorder.Code, got,
				c.status, c.want)
		}
	}
}

// TestHeadersOfAMessage sends duplicate and invalid headers.
func TestHeadersOfAMessage(t *testing.T) {
	h := newEnv(t)
	send := func(name string, values ...string) (status int, _ *waiting.Message) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.base+"/v1/messages",
			strings.NewReader(`{"agent":"clerk","body":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header[name] = values
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			return resp.StatusCode, nil
		}
		m, err := h.Message(t.Context(), one[turnkeeper.MessageID](h, "select max(id) from turnkeeper.messages"))
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, &m
	}
	if status, _ := send("Idempotency-Key", "one", "two"); status != http.StatusBadRequest {
		t.Errorf("with two keys it is answered %d", status)
	}
	const later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-"
	longest := later + strings.Repeat("x", 256-len(later))
	for value, want := range map[string]string{longest: longest, longest + "x": "", "nonsense": ""} {
		if _, m := send("Traceparent", value); m == nil || m.TraceParent != want {
			t.Errorf("of the traceparent %q is kept %+v", value, m)
		}
	}
}

// TestWaitingForWhatIsThere checks that waiting for an existing reply returns at once.
func TestWaitingForWhatIsThere(t *testing.T) {
	h := newEnv(t)
	const body = `{"agent":"clerk","body":"work"}`
	h.ask("POST", "/v1/messages", body, "Idempotency-Key", "k").want(t, http.StatusCreated, "")
	h.dispatch("clerk").finish("done")
	h.ask("POST", "/v1/messages?wait=1ms", body, "Idempotency-Key", "k").want(t, http.StatusOK, `"body":"done"`)
}

func TestRefusedAddresses(t *testing.T) {
	h := newEnv(t)
	for _, c := range []struct {
		method, path, body string
		headers            []string
		status             int
		detail             string
	}{
		{"GET", "/v1/messages/99999999999999999999", "", nil, 404, `there is no message \"99999999999999999999\"`},
		{"GET", "/v1/messages/7?wait=1s", "", nil, 404, "there is no message 7"},
		{"GET", "/v1/nothing?x=%zz", "", nil, 400, "the query string is invalid"},
		{"POST", "/v1/responses", `{"model":"clerk","input":"x"}`, []string{"Content-Type", "text/plain"}, 415,
			"application/json"},
	} {
		h.ask(c.method, c.path, c.body, c.headers...).want(t, c.status, c.detail)
	}
}

// TestLabelsOfAReply checks that the labels of a turn are shown with its reply wherever that is.
func TestLabelsOfAReply(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "one")
	if _, err := h.Pool().Exec(t.Context(),
		`insert into turnkeeper.labels (kind, id, label, source) select 'turn', 1, unnest('{untrusted,private}'::text[]), 'a page'`); err != nil {
		t.Fatal(err)
	}
	d.finish("done")
	h.turn("desk", "two").finish("done")
	for path, want := range map[string]string{
		"/v1/outbox":     `"labels":["private","untrusted"]`,
		"/v1/messages/1": `"labels":["private","untrusted"]`,
		"/v1/messages/2": `"labels":[]`,
		"/v1/turns/1":    `"labels":["private","untrusted"]`,
		"/replies":       `<span class="why">private</span> <span class="why">untrusted</span>`,
		"/inbox/1":       `<span class="why">private</span> <span class="why">untrusted</span>`,
		"/turns/1":       `<span class="why">private</span> <span class="why">untrusted</span>`,
	} {
		if a := h.ask("GET", path, ""); a.status != http.StatusOK || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d without %s: %s", path, a.status, want, a.body)
		}
	}
}

// TestPagesOfLists requests lists that end before or exactly at their limit.
func TestPagesOfLists(t *testing.T) {
	h := newEnv(t)
	if err := h.RegisterWebhook(t.Context(), outbox.Webhook{Name: "hook", Origin: "https://hook.example",
		SubAgents: true}); err != nil {
		t.Fatal(err)
	}
	h.turn("clerk", "one").finish("done")
	h.turn("desk", "two").finish("done")
	if _, err := h.Pool().Exec(t.Context(),
		"update turnkeeper.replies set parent_turn_id = 1 where id = 2"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pool().Exec(t.Context(),
		"insert into turnkeeper.leases (lane, agent, failures) values ('clerk', 'clerk', 1), ('desk', 'desk', 1)"); err != nil {
		t.Fatal(err)
	}
	clerk := []string{"Authorization", h.token(operate.Token{Name: "clerk", Scopes: everything,
		Agents: []string{"clerk"}})}
	for _, c := range []struct {
		path    string
		headers []string
		want    string // agents and next cursor
	}{
		{"/v1/lanes", nil, "clerk desk next 0"},
		{"/v1/lanes?limit=2", nil, "clerk desk next 2"},
		{"/v1/webhooks/hook/deliveries", nil, "desk clerk next 0"},
		{"/v1/webhooks/hook/deliveries?limit=1", nil, "desk next 2"},
		{"/v1/webhooks/hook/deliveries?limit=1&cursor=2", nil, "clerk next 1"},
		{"/v1/outbox", nil, "clerk desk next 2"},
		{"/v1/outbox?sub_agents=true", nil, "clerk desk next 2"},
		{"/v1/outbox?sub_agents=false", nil, "clerk next 1"},
		{"/v1/turns", nil, "desk clerk next 0"},
		{"/v1/turns", clerk, "clerk next 0"},
		{"/v1/turns?agent=clerk", clerk, "clerk next 0"},
	} {
		a := h.ask("GET", c.path, "", c.headers...)
		page := decode[struct {
			Items []struct{ Agent, Lane string }
			Next  int64
		}](t, a)
		var got strings.Builder
		for _, item := range page.Items {
			got.WriteString(cmp.Or(item.Agent, item.Lane) + " ")
		}
		if fmt.Fprintf(&got, "next %d", page.Next); got.String() != c.want {
			t.Errorf("%s: %q, want %q: %d %s", c.path, got.String(), c.want, a.status, a.body)
		}
	}
	for _, path := range []string{"/turns", "/inbox", "/replies", "/lanes", "/webhooks/hook", "/asks"} {
		if whole := h.ask("GET", path, ""); whole.status != 200 || strings.Contains(string(whole.body), `rel="next"`) {
			t.Errorf("%s leads to a page after the last one: %d", path, whole.status)
		}
		if first := h.ask("GET", path+"?limit=1", ""); path != "/asks" && !strings.Contains(string(first.body),
			`rel="next"`) {
			t.Errorf("%s does not lead to its second page: %d", path, first.status)
		}
	}
}
