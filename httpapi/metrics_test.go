package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"turnkeeper/httpapi"
	"turnkeeper/storage/operate"
)

func withMetrics(c *httpapi.Config) {
	c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "up 1") })
}

func TestTheMetricsAreForWhoMayReadAll(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) {
		c.NeedToken = true
		withMetrics(c)
	})
	made := 0
	bearer := func(scopes, agents []string) string {
		made++
		return h.token(operate.Token{Name: fmt.Sprint("token-", made), Scopes: scopes, Agents: agents})
	}
	h.ask("GET", "/metrics", "").want(t, 401, "a token is required")
	h.ask("GET", "/metrics", "", "Authorization", bearer([]string{"send"}, nil)).want(t, 403,
		`needs a token with the scope`)
	h.ask("GET", "/metrics", "", "Authorization", bearer([]string{"read"}, []string{"clerk"})).want(t,
		403, "all agents")
	h.ask("GET", "/metrics", "", "Authorization", bearer([]string{"read"}, nil)).want(t, 200, "up 1")
	_, base := h.serve()
	h.askAt(base, "GET", "/metrics", "").want(t, 404, "has no metrics")
}

// TestEveryRequestIsToldOf checks that every request is observed, with labels from a fixed set of values.
func TestEveryRequestIsToldOf(t *testing.T) {
	var mu sync.Mutex
	var told []string
	h := newEnv(t, func(c *httpapi.Config) {
		c.Observe = func(method, route string, status int, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(method, " ", route, " ", status))
			if took <= 0 {
				t.Errorf("%s took %s", route, took)
			}
		}
	})
	h.ask("GET", "/v1/turns", "")
	h.ask("GET", "/v1/turns/4711", "")
	h.ask("GET", "/nothing/to/see", "")
	h.ask("BREW", "/v1/turns", "")
	h.ask("GET", "/v1/turns", "", "Host", "elsewhere.example")
	turn := h.turn("clerk", "work")
	turn.finish("done")
	h.ask("GET", fmt.Sprintf("/v1/turns/%d/events", turn.id), "", "Accept", "text/event-stream").want(t, 200,
		"turn_complete")
	want := []string{
		"GET /v1/turns 200", "GET /v1/turns/{id} 404", "_OTHER  404", "_OTHER  405", "GET /v1/turns 421",
		"GET /v1/turns/{id}/events 200",
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(told)
	slices.Sort(want)
	if !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}
