package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/internal/pgdev"
	"turnkeeper/storage/storagetest"
)

// ApplicationName is the application_name of the test's own connections.
const ApplicationName = storagetest.ApplicationName

// OpenPool connects the test itself to a database.
func OpenPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := openPool(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 4
	cfg.ConnConfig.RuntimeParams["search_path"] = "turnkeeper"
	cfg.ConnConfig.RuntimeParams["application_name"] = ApplicationName
	return pgxpool.NewWithConfig(ctx, cfg)
}

// A client is what a test reads its database with. The next tests use it, too.
type client struct {
	pool  *pgxpool.Pool
	store *storeKeeper
}

func openClient(ctx context.Context, url string) (*client, error) {
	pool, err := openPool(ctx, url)
	return &client{pool, &storeKeeper{url: url}}, err
}

func (c *client) Pools() []*pgxpool.Pool { return append(c.store.pools(), c.pool) }

// AsNew is true: the store only reads.
func (c *client) AsNew() bool { return true }

// Close closes all connections.
func (c *client) Close() {
	c.pool.Close()
	c.store.close()
}

// Query returns the single value of a query.
func Query[V any](e *Env, sql string, args ...any) V {
	e.T.Helper()
	v, err := TryQuery[V](e, sql, args...)
	if err != nil {
		e.T.Fatalf("%s: %v", sql, err)
	}
	return v
}

// TryQuery is like Query, but returns the error.
func TryQuery[V any](e *Env, sql string, args ...any) (v V, err error) {
	rows, err := e.DB.Query(e.T.Context(), sql, args...)
	if err != nil {
		return v, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[V])
}

// Exec executes a statement.
func (e *Env) Exec(sql string, args ...any) {
	e.T.Helper()
	if _, err := e.DB.Exec(e.T.Context(), sql, args...); err != nil {
		e.T.Fatalf("%s: %v", sql, err)
	}
}

// Await waits until the query returns true. It retries while the database is unavailable.
func (e *Env) Await(what, sql string, args ...any) {
	e.T.Helper()
	e.Poll(what, func() bool {
		e.T.Helper()
		yes, err := TryQuery[bool](e, sql, args...)
		const unavailable = "57P" // admin_shutdown, crash_shutdown, cannot_connect_now
		if wrong, ok := errors.AsType[*pgconn.PgError](err); ok && !strings.HasPrefix(wrong.Code, unavailable) {
			e.T.Fatalf("%s: %v", sql, err)
		}
		return yes
	})
}

// Poll waits until done returns true.
func (e *Env) Poll(what string, done func() bool) {
	e.T.Helper()
	// The pause grows, because an event that takes long need not be noticed at once.
	pause, maxPause := 10*time.Millisecond, 150*time.Millisecond
	for end := time.Now().Add(Patience); !done(); <-After(pause) {
		pause = min(pause*5/4, maxPause)
		if time.Now().After(end) {
			e.T.Fatalf("timeout waiting until %s", what)
		}
	}
}

// Rows returns the rows of every table of the database as text, by table.
func (e *Env) Rows() map[string]string {
	e.T.Helper()
	tables := Query[[]string](e, `
		select array_agg(quote_ident(schemaname) || '.' || quote_ident(tablename)) from pg_tables
		where schemaname not in ('pg_catalog', 'information_schema')`)
	if len(tables) < 15 {
		e.T.Fatalf("only the tables %v exist", tables)
	}
	all := map[string]string{}
	for _, table := range tables {
		all[table] = Query[string](e, "select coalesce(string_agg(t::text, E'\\n'), '') from "+table+" t")
	}
	return all
}

// SharedDir returns a temporary folder that every user may enter, for a Postgres that runs as
// another user.
func SharedDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "turnkeeper-tests-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ServerDir returns a folder for the test's own Postgres. It is a copy of a cluster that is made
// once per package, because making one takes most of a second of CPU time.
func ServerDir(t testing.TB) string {
	t.Helper()
	from, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(SharedDir(t), "postgres")
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copying a cluster: %v\n%s", err, out)
	}
	return to
}

var cluster = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cluster-") // removed with the package's temporary folder
	if err != nil {
		return "", err
	}
	server, err := pgdev.Open(context.Background(), pgdev.Options{Dir: dir})
	if err != nil {
		return "", err
	}
	return dir, server.Close(context.Background())
})

// PostmasterPID returns the process ID of the private Postgres in a folder, or 0 if there is none.
func PostmasterPID(t testing.TB, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// ProcessAlive reports whether a process runs. A zombie does not: its command line is empty.
func ProcessAlive(pid int) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil {
		return len(args) > 0
	}
	if _, noProc := os.Stat("/proc/self"); noProc == nil {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}
