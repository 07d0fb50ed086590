package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper/httpapi"
	"turnkeeper/internal/limittest"
	"turnkeeper/internal/presence"
)

// A slow is a store whose database takes its time to answer a probe.
type slow struct {
	httpapi.Store
	takes time.Duration
}

func (s slow) Ping(ctx context.Context) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isReady reports whether a process with these settings is ready.
func isReady(t *testing.T, cfg httpapi.Config) (ready bool) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/readyz", nil)
		httpapi.New(cfg).Handler().ServeHTTP(w, r)
		ready = w.Code == http.StatusOK
	})
	return ready
}

// TestLimits tries each limit of the API itself. Those of its routes are in TestParametersOnEitherSideOfABound.
func TestLimits(t *testing.T) {
	h := newEnv(t)
	events := func(n int) []json.RawMessage { // of a turn with n events
		d := h.turn("clerk", fmt.Sprint(n))
		have := len(decode[struct{ Items []json.RawMessage }](t, h.ask("GET", fmt.Sprintf("/v1/turns/%d/events",
			d.id), "")).Items)
		d.many(n - have)
		a := h.ask("GET", fmt.Sprintf("/v1/turns/%d/events", d.id), "")
		d.finish("done")
		return decode[struct{ Items []json.RawMessage }](t, a).Items
	}
	rows := map[string]limittest.Row{
		"unreadyAfter": {At: 4999, Takes: func(t *testing.T, n int) bool { // milliseconds
			return isReady(t, httpapi.Config{Store: slow{}, Refused: func() []presence.Refusal {
				return []presence.Refusal{{For: time.Duration(n) * time.Millisecond, Attempts: 2, SQLState: "40P01"}}
			}})
		}},
		"pingTimeout": {At: 999, Takes: func(t *testing.T, n int) bool { // 1,997, 1,999 and 2,001 ms
			return isReady(t, httpapi.Config{Store: slow{takes: time.Duration(2*n+1) * time.Millisecond}})
		}},
		"defaultEvents": {At: 500, Takes: func(_ *testing.T, n int) bool { return len(events(n)) == n }},
	}
	for name, test := range map[string]string{
		"maxBuckets": "TestBucketsAreForgotten", "confirmedFor": "TestWhoIsGuessing",
		"maxEvents":       "TestParametersOnEitherSideOfABound",
		"purgeCheckEvery": "TestStreamsOfWhatIsPurged", "reserve": "TestAConnectionWaitsForRoom",
	} {
		rows[name] = limittest.Row{Test: test}
	}
	for name, why := range map[string]string{
		"writeTimeout": "it is for clients that do not read", "headerTime": "net/http keeps it",
		"idleTime":  "net/http keeps it",
		"maxHeader": "net/http keeps it, and some more",
		"maxEdited": "the database refuses more", "statusNone": "it is no limit",
	} {
		rows[name] = limittest.Row{None: why}
	}
	limittest.Check(t, rows)
}
