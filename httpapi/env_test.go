package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// An env is an API on a free port with a real database and the agents clerk and desk.
type env struct {
	*storagetest.DB
	t      *testing.T
	base   string
	bell   *storage.Notifier
	server *httpapi.Server
}

func newEnv(t *testing.T, changes ...func(*httpapi.Config)) *env {
	t.Helper()
	t.Parallel()
	db := storagetest.Reused(t, "")
	h := &env{DB: db, t: t, bell: storage.NewNotifier(db.URL, zap.NewNop())}
	for _, name := range []string{"clerk", "desk"} {
		source := "You are " + name + "."
		sum := sha256.Sum256([]byte(source))
		err := h.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{{
			Name: name, Definition: []byte(source), DefinitionHash: hex.EncodeToString(sum[:]),
			Schedules: []turnkeeper.Schedule{{Agent: name, Name: "daily", Cron: "@daily", TimeZone: "UTC",
				Conversation: "main", Message: "look"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	rung := make(chan struct{})
	go func() { defer close(rung); h.bell.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-rung })
	h.server, h.base = h.serve(changes...)
	return h
}

// serve starts another server on the same database.
func (h *env) serve(changes ...func(*httpapi.Config)) (*httpapi.Server, string) {
	h.t.Helper()
	return h.serveUpTo(200, changes...)
}

func (h *env) serveUpTo(connections int, changes ...func(*httpapi.Config)) (*httpapi.Server, string) {
	h.t.Helper()
	cfg := httpapi.Config{
		Store: h.Store, Rings: func() (<-chan struct{}, func()) { return h.bell.Subscribe(storage.TopicTurns) },
		Rate: 100_000, MaxMessageBytes: 1000,
	}
	for _, change := range changes {
		change(&cfg)
	}
	listener, err := httpapi.Listen(h.t.Context(), "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	s := httpapi.Serve(httpapi.New(cfg), listener, connections)
	h.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			h.t.Errorf("the server was not stopped: %v", err)
		}
	})
	return s, "http://" + s.Address()
}

// An answer is a response, read completely.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask sends a request with headers given as name, value, ...
func (h *env) ask(method, path, body string, headers ...string) answer {
	h.t.Helper()
	return h.askAt(h.base, method, path, body, headers...)
}

func (h *env) askAt(base, method, path, body string, headers ...string) answer {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, text}
}

// client keeps no idle connections and follows no redirects.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// want fails the test unless the answer has this status and contains this text.
func (a answer) want(t *testing.T, status int, contains string) {
	t.Helper()
	if a.status != status || !strings.Contains(string(a.body), contains) {
		t.Errorf("answered %d %s, want %d and %q", a.status, a.body, status, contains)
	}
	kind := "application/problem+json"
	if strings.HasPrefix(string(a.body), `{"error":`) { // the error format of the Responses API
		kind = "application/json"
	}
	if status >= 400 && a.header.Get("Content-Type") != kind {
		t.Errorf("a problem has the type %q", a.header.Get("Content-Type"))
	}
	problem := decode[struct {
		Detail string
		Error  struct{ Message string }
	}]
	if status < 400 || a.status < 400 {
		return
	}
	if p := problem(t, a); p.Detail+p.Error.Message == "" {
		t.Errorf("a problem does not say what is wrong: %s", a.body)
	}
}

func decode[V any](t *testing.T, a answer) (v V) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return v
}

// A dispatch is a granted turn with the journal of its worker.
type dispatch struct {
	*journal.Writer
	id turnkeeper.TurnID
	t  *testing.T
}

// turn enqueues a message and grants its turn, as a scheduler and a worker do.
func (h *env) turn(agent, body string) *dispatch {
	h.t.Helper()
	return h.turnAs("", agent, body)
}

func (h *env) turnAs(user, agent, body string) *dispatch {
	h.t.Helper()
	if _, err := h.Enqueue(h.t.Context(), turnkeeper.Submission{Agent: agent, User: user, Body: body}); err != nil {
		h.t.Fatal(err)
	}
	return h.dispatch(agent)
}

func (h *env) dispatch(agent string) *dispatch {
	h.t.Helper()
	ctx := h.t.Context()
	var grant turnkeeper.GrantID
	if err := h.Pool().QueryRow(ctx, "select gen_random_uuid()::text").Scan(&grant); err != nil {
		h.t.Fatal(err)
	}
	err := h.InTick(ctx, func(tick *grants.Tick) error {
		if _, _, err := tick.Snapshot(ctx, true); err != nil {
			return err
		}
		ready, err := tick.ReadyMessages(ctx, 1, nil)
		if err != nil || len(ready) != 1 {
			h.t.Errorf("%d messages are ready: %v", len(ready), err)
			return err
		}
		return tick.Grant(ctx, ready, []turnkeeper.GrantID{grant}, grants.Job{Kind: "AgentTurn", Queue: "turns"},
			240*time.Second)
	})
	if err != nil {
		h.t.Fatal(err)
	}
	var turn turnkeeper.TurnID
	var job turnkeeper.JobID
	row := h.Pool().QueryRow(ctx, "select turn_id, job_id from turnkeeper.lease_log where grant_id = $1", grant)
	if err := row.Scan(&turn, &job); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.BindGrant(ctx, turn, grant, "worker-1"); err != nil {
		h.t.Fatal(err)
	}
	record, err := h.Load(ctx, turn, grant)
	if err != nil {
		h.t.Fatal(err)
	}
	return &dispatch{h.Writer(record, turnkeeper.Grant{
		TurnID: turn, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: grant, JobID: job,
		WorkerID: "worker-1",
	}), turn, h.t}
}

func (d *dispatch) write(e turnlog.Entry, ending turnlog.Consequence) {
	d.t.Helper()
	if err := d.Append(context.WithoutCancel(d.t.Context()), e, ending); err != nil {
		d.t.Errorf("writing to turn %d: %v", d.id, err)
	}
}

func (d *dispatch) say(text string) {
	d.t.Helper()
	data, _ := json.Marshal(map[string]string{"text": text})
	d.write(turnlog.Entry{Events: []turnkeeper.Event{{Type: turnkeeper.EventBlockDelta, Round: 1, Block: 1,
		Data: data}}}, turnlog.Consequence{})
}

// many writes n deltas in one entry.
func (d *dispatch) many(n int) {
	d.t.Helper()
	var events []turnkeeper.Event
	for i := range n {
		events = append(events, turnkeeper.Event{Type: turnkeeper.EventBlockDelta, Round: 1, Block: 1,
			Data: fmt.Appendf(nil, `{"text":"%d"}`, i)})
	}
	d.write(turnlog.Entry{Events: events}, turnlog.Consequence{})
}

func (d *dispatch) finish(reply string) {
	d.t.Helper()
	d.write(turnlog.Entry{
		Events: []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete,
			Data: []byte(`{"state":"succeeded","stop_reason":"none","rounds":1,"calls":0}`)}},
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: reply},
	}, turnlog.Consequence{Message: turnkeeper.MessageSucceeded, Log: "finished"})
}

// everything lists all scopes but answer, which no token has together with send.
var everything = []string{"send", "read", "operate"}

// token creates a token and returns the Authorization header for it.
func (h *env) token(token operate.Token) string {
	h.t.Helper()
	_, secret, err := h.CreateToken(h.t.Context(), token)
	if err != nil {
		h.t.Fatal(err)
	}
	return "Bearer " + secret
}

func one[V any](h *env, sql string, args ...any) (v V) {
	h.t.Helper()
	if err := h.Pool().QueryRow(h.t.Context(), sql, args...).Scan(&v); err != nil {
		h.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// stuck opens a stream and reads nothing.
func (h *env) stuck(path string) (end func()) {
	h.t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(h.t.Context(), "tcp", strings.TrimPrefix(h.base, "http://"))
	if err == nil {
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", path)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return func() { _ = conn.Close() }
}
