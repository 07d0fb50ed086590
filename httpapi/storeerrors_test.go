package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// away is a store whose queries fail with errAway.
type away struct{ httpapi.Store }

var errAway = errors.New("dial tcp 10.1.2.3:5432: password=hunter2")

func (away) WhoseTurn(context.Context, turnkeeper.TurnID) (turnkeeper.ConversationKey, error) {
	return turnkeeper.ConversationKey{}, errAway
}
func (away) FindToken(context.Context, string) (operate.Token, error) {
	return operate.Token{}, errAway
}
func (away) FindSession(context.Context, string) (operate.Token, error) {
	return operate.Token{}, errAway
}
func (away) Ping(context.Context) error { return errAway }

// unreachable is a store whose database cannot be reached.
type unreachable struct {
	httpapi.Store
	err error
}

func (u unreachable) SchedulerSettings(context.Context) (operate.SchedulerSettings, error) {
	return operate.SchedulerSettings{}, u.err
}

// TestTheDatabaseCannotBeReached checks that errors about an unreachable database do not reveal its address.
func TestTheDatabaseCannotBeReached(t *testing.T) {
	folder := t.TempDir() // has no socket
	_, err := operate.Open(t.Context(), storage.Options{URL: "postgres://somebody:hunter2@/db?host=" + folder})
	if err == nil {
		t.Fatal("there is a database")
	}
	h := newEnv(t, func(c *httpapi.Config) { c.Store = unreachable{c.Store, err} })
	page, program := h.ask("GET", "/", ""), h.ask("GET", "/v1/scheduler", "")
	page.wantPage(t, http.StatusServiceUnavailable, "The database does not answer")
	program.want(t, http.StatusServiceUnavailable, "the database does not answer")
	for _, a := range []answer{page, program} {
		for _, secret := range []string{"hunter2", "somebody", folder} {
			if strings.Contains(string(a.body), secret) {
				t.Errorf("the answer tells %q: %s", secret, a.body)
			}
		}
	}
}

// TestTheDatabaseIsAway checks that internal errors are not revealed, and that an EventSource reconnects: it gives up
// at any status but 200.
func TestTheDatabaseIsAway(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	h := newEnv(t, func(c *httpapi.Config) {
		c.Store, c.Log = away{c.Store}, zap.New(core)
		c.Mask = func(text string) string { return strings.ReplaceAll(text, "hunter2", "[redacted]") }
	})
	for path, want := range map[string]string{"/v1/turns/1": "the request failed",
		"/v1/turns/1/events": "the request failed", "/readyz": "does not answer"} {
		a := h.ask("GET", path, "")
		a.want(t, http.StatusServiceUnavailable, want)
		if strings.Contains(string(a.body), "10.1.2.3") || strings.Contains(string(a.body), "hunter2") {
			t.Errorf("%s tells what is inside: %s", path, a.body)
		}
	}
	for i, pattern := range []string{"GET /v1/turns/{id}", "GET /v1/turns/{id}/events"} { // a probe is not logged
		found := logs.FilterField(zap.String("pattern", pattern)).All()
		if logs.Len() != 2 || len(found) != 1 || found[0].ContextMap()["error"] != strings.ReplaceAll(errAway.Error(),
			"hunter2", "[redacted]") {
			t.Errorf("%d: of %s is logged: %v", i, pattern, logs.All())
		}
	}
	w := &watcher{base: h.base}
	if err := w.watch(t.Context(), "/v1/turns/1/events", 0); err != nil || w.over || len(w.seen) > 0 {
		t.Errorf("the stream ended with %v", err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer tk_some",
		"Cookie": "turnkeeper_session=ts_some"} {
		h.ask("GET", "/v1/turns/1/events", "", name, value).want(t, http.StatusServiceUnavailable, "the request failed")
		h.ask("GET", "/readyz", "", name, value, "Accept", "text/event-stream").want(t, http.StatusServiceUnavailable,
			"does not answer")
		a := h.ask("GET", "/v1/turns/1/events", "", name, value, "Accept", "text/event-stream")
		if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" ||
			strings.Contains(string(a.body), "data") {
			t.Errorf("with %s an EventSource was answered %d %s, and gives up", name, a.status, a.body)
		}
	}
}

// hanging is a store whose database accepts queries and never answers.
type hanging struct{ httpapi.Store }

func (hanging) WhoseTurn(ctx context.Context, _ turnkeeper.TurnID) (turnkeeper.ConversationKey, error) {
	<-ctx.Done()
	return turnkeeper.ConversationKey{}, ctx.Err()
}

func (hanging) FindToken(ctx context.Context, _ string) (operate.Token, error) {
	<-ctx.Done()
	return operate.Token{}, ctx.Err()
}

func (hanging) Message(ctx context.Context, _ turnkeeper.MessageID) (waiting.Message, error) {
	<-ctx.Done()
	return waiting.Message{}, ctx.Err()
}

func (hanging) SchedulerSettings(ctx context.Context) (operate.SchedulerSettings, error) {
	<-ctx.Done()
	return operate.SchedulerSettings{}, ctx.Err()
}

func (hanging) Response(ctx context.Context, _ turnkeeper.MessageID) (operate.Response, error) {
	<-ctx.Done()
	return operate.Response{}, ctx.Err()
}

func TestTheDatabaseHangs(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Store, c.QueryTimeout = hanging{c.Store}, 50*time.Millisecond })
	const detail = "the database does not answer: try again later"
	for _, path := range []string{"/v1/turns/1", "/v1/messages/1", "/v1/messages/1?wait=1s", "/v1/scheduler",
		"/v1/turns/1/events", "/v1/responses/resp_1"} {
		h.ask("GET", path, "").want(t, http.StatusServiceUnavailable, detail)
	}
	h.ask("GET", "/", "").wantPage(t, http.StatusServiceUnavailable, "The database does not answer")
	h.ask("GET", "/v1/agents", "", "Authorization", "Bearer tk_some").want(t, http.StatusServiceUnavailable, detail)
	if a := h.ask("POST", "/v1/messages?wait=1s",
		`{"agent":"clerk","body":"x"}`); a.status != http.StatusServiceUnavailable {
		t.Errorf("a wait is answered %d %s", a.status, a.body)
	}
}

// TestOtherQueriesGoOn asks for what a store answers whose other queries hang.
func TestOtherQueriesGoOn(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.Store = hanging{c.Store} })
	h.ask("GET", "/v1/agents", "").want(t, http.StatusOK, "clerk")
}

// TestAWaitIsLongerThanTheQueryTimeout checks that the query timeout does not apply to waiting for a reply.
func TestAWaitIsLongerThanTheQueryTimeout(t *testing.T) {
	testrun.Slow(t)
	h := newEnv(t, func(c *httpapi.Config) { c.QueryTimeout = 2 * time.Second })
	h.ask("POST", "/v1/messages?wait=3s", `{"agent":"clerk","body":"x"}`).want(t, http.StatusAccepted, "waiting")
}
