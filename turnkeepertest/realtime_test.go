package turnkeepertest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/turnkeepertest"
)

// TestRealTime tests a tool with a real connection in real time.
func TestRealTime(t *testing.T) {
	turnkeepertest.LoseAnswersEverywhere(t, func(t *testing.T) turnkeepertest.Scenario {
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			_, _ = fmt.Fprintf(w, "ordered %s", r.URL.Query().Get("item"))
		}))
		t.Cleanup(server.Close)
		order := tools.Func(tools.Spec{Name: "order", Description: "Orders an item.", Effect: turnkeeper.EffectOnce},
			func(ctx context.Context, args item) (string, error) { return get(ctx, server, "?item="+args.Item) })
		scenario := ordering(order, &shop{})
		// No worker counts as lost, even on a busy machine.
		scenario.RealTime, scenario.TakeoverAfter, scenario.Patience = true, time.Minute, 10*time.Minute
		scenario.Check = func(t testing.TB, r *turnkeepertest.Result) {
			if call := r.Calls("order")[0]; asked.Load() != 1 || call.Shown != "ordered tea" || r.Reply() != "Done." {
				t.Errorf("asked %d times; the call shows %q, the reply is %q", asked.Load(), call.Shown, r.Reply())
			}
		}
		return scenario
	})
}

func get(ctx context.Context, server *httptest.Server, query string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+query, nil)
	if err != nil {
		return "", err
	}
	response, err := server.Client().Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
