package tests_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"turnkeeper/internal/pgdev"
	"turnkeeper/jobs"
	"turnkeeper/storage"
)

// TestTheDatabaseGoesAwayUnderLoad cuts every connection, again and again, and
// then crashes and restarts Postgres, while two workers answer messages that
// each make one mark.
func TestTheDatabaseGoesAwayUnderLoad(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(sharedFolder(t), "postgres")
	server := startPostgres(t, dir)
	migrate(t, server.URL())
	h := newHouseOn(t, server.URL())
	h.agent("clerk", marks, "lane: conversation")
	var asked atomic.Int64
	cut := make(chan struct{}, 1000)
	h.model.Then(func(r recorded) reply {
		if asked.Add(1)%10 == 0 {
			cut <- struct{}{}
		}
		if roundOf(r) == 1 {
			return callOnce("mark_once", newest(r))
		}
		return text("answer to " + newest(r))
	})
	h.startWorker()
	h.startWorker()
	const messages = 60
	var ids []int64
	for i := range messages {
		ids = append(ids, query[int64](h, "select turnkeeper.enqueue('clerk', $1, $2)", fmt.Sprint("message ", i), fmt.Sprint("conversation ", i%6)))
	}
	for range 5 {
		<-cut
		h.await("every connection is cut", `select count(pg_terminate_backend(pid)) >= 0 from pg_stat_activity
			where pid <> pg_backend_pid() and backend_type = 'client backend'`)
	}
	<-cut
	if err := syscall.Kill(postmaster(t, dir), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	startPostgres(t, dir)

	h.awaitClosed(ids...)
	for i, id := range ids {
		body := fmt.Sprint("message ", i)
		h.ledger.ran(body, 1)
		if got := query[string](h, "select outcome || ': ' || body from replies where message_id = $1", id); got != "succeeded: answer to "+body {
			t.Errorf("message %d has the reply %q", id, got)
		}
	}
}

func startPostgres(t testing.TB, dir string) *pgdev.Server {
	t.Helper()
	server, err := pgdev.Open(t.Context(), pgdev.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server
}

func migrate(t testing.TB, url string) {
	t.Helper()
	store, err := storage.Open(t.Context(), storage.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := jobs.Migrate(t.Context(), store, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
}
