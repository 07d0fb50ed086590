package storage_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// TestServersThatNoLongerServe lets the server refuse statements on one connection, as after a
// failover and during a shutdown. The store replaces all connections, and later statements succeed.
func TestServersThatNoLongerServe(t *testing.T) {
	h := newEnv(t)
	for name, c := range map[string]struct {
		refuse string // SQL that makes the session of $1 refuse
		held   bool   // the connection that River holds is closed too
	}{
		"it became read-only": {"select set_config('default_transaction_read_only', 'on', false) where $1 > 0", true},
		"it shuts down":       {"do $$ begin raise exception using errcode = '57P01'; end $$", false},
		"it crashed":          {"do $$ begin raise exception using errcode = '57P02'; end $$", false},
		"it starts":           {"do $$ begin raise exception using errcode = '57P03'; end $$", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storagetest.Open(t, h.URL)
			before := map[int]bool{}
			conns := sessions(t, s.Pool(), before)
			held, err := s.QueuePool().Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer held.Release()
			for pid, conn := range conns {
				if c.held {
					_, err = conn.Exec(t.Context(), c.refuse, pid)
				} else {
					_, _ = conn.Exec(t.Context(), c.refuse)
				}
				if err != nil {
					t.Fatal(err)
				}
				conn.Release()
			}
			write := func() error { return s.StopBeating(t.Context(), "w") }
			if err := write(); c.held && err == nil {
				t.Error("a read-only session took a write")
			}
			if err := write(); err != nil {
				t.Errorf("the write after the refusal: %v", err)
			}
			for pid, conn := range sessions(t, s.Pool(), map[int]bool{}) {
				if before[pid] {
					t.Errorf("session %d is used on", pid)
				}
				conn.Release()
			}
			if err := held.Ping(t.Context()); (err != nil) != c.held {
				t.Errorf("a connection in use by River: %v", err)
			}
		})
	}
}

// sessions acquires two connections of a pool, and adds their sessions to noted.
func sessions(t *testing.T, pool *pgxpool.Pool, noted map[int]bool) map[int]*pgxpool.Conn {
	t.Helper()
	all := map[int]*pgxpool.Conn{}
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		if err := conn.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		all[pid], noted[pid] = conn, true
	}
	return all
}

// TestABellOfAServerThatBecameReadOnly makes the session of a notifier read-only. The notifier then
// listens on another session.
func TestABellOfAServerThatBecameReadOnly(t *testing.T) {
	h := newEnv(t)
	bell := storage.NewNotifier(h.URL, zap.NewNop())
	bell.Quiet = 10 * time.Millisecond
	inbox, _ := bell.Subscribe(storage.TopicInbox)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bell.Run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	awaitRing(t, "the bell listens", inbox)
	name := storagetest.One[string](h, "select quote_ident(current_database())")
	h.Exec("alter database " + name + " set default_transaction_read_only = on")
	if storagetest.One[int](h,
		"select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'turnkeeper bell' and datname = current_database()) k") == 0 {
		t.Fatal("there is no bell")
	}
	awaitRing(t, "the bell listens to a server that is read-only", inbox)
	awaitRing(t, "and looks for another", inbox)
}
