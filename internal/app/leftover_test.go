package app_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
)

// TestAWorkerLeavesNoConnection checks that a stopped worker holds no database connection, whether it was idle or
// running a turn. TestMain checks for goroutines.
func TestAWorkerLeavesNoConnection(t *testing.T) {
	for name, c := range map[string]struct{ turn, hard bool }{
		"idle":                         {},
		"with a turn":                  {turn: true},
		"idle, stopped at once":        {hard: true},
		"with a turn, stopped at once": {turn: true, hard: true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 10)
			model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet { // the model list, which a worker awaits at its start
					http.NotFound(w, r)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body) // the server notices a closed connection only after reading the body
				asked <- struct{}{}
				<-r.Context().Done()
			}))
			defer model.Close()
			cfg := settings(t, "---\nmodel: slow/m\n---\nYou wait.\n")
			cfg.Providers = map[string]config.Provider{"slow": {Name: "slow", BaseURL: model.URL + "/v1"}}
			cfg.ShutdownGrace = 0
			conn, err := pgx.Connect(t.Context(), cfg.DatabaseURL.Reveal())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.Background()) }()

			soft, askToEnd := context.WithCancel(context.Background())
			hard, dropAll := context.WithCancel(context.Background())
			defer dropAll()
			defer askToEnd()
			ready, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- app.RunWorker(soft, hard, cfg, zap.NewNop(), func(app.Ready) { close(ready) })
			}()
			<-ready
			// some open shortly after ready
			for _, name := range []string{"turnkeeper", "turnkeeper bell", "turnkeeper queue"} {
				for over := time.Now().Add(patience); !slices.Contains(names(t, conn), name); <-time.After(
					10 * time.Millisecond) {
					if time.Now().After(over) {
						t.Fatalf("a worker that runs has the connections %q, and none is called %q",
							names(t, conn), name)
					}
				}
			}
			if c.turn {
				if _, err := conn.Exec(t.Context(), "select turnkeeper.enqueue('helper', 'Hello')"); err != nil {
					t.Fatal(err)
				}
				<-asked
			}
			askToEnd()
			if c.hard {
				dropAll()
			}
			told := func(err error) bool { return c.hard && strings.Contains(err.Error(), "stopped at once") }
			if err := <-ended; err != nil && !told(err) {
				t.Errorf("the worker ended with %v", err)
			}
			// Server processes end shortly after their connections close.
			for over := time.Now().Add(patience); len(names(t, conn)) > 0; <-time.After(10 * time.Millisecond) {
				if time.Now().After(over) {
					t.Fatalf("the worker left the connections %q", names(t, conn))
				}
			}
		})
	}
}

// names returns the application names of the other connections to the database.
func names(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, _ := conn.Query(t.Context(), `select application_name from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}
