// Package storagetest gives tests a real Postgres: one private server for the
// tests of a package, and for each test a fresh database, cloned from a
// migrated template. A package that uses it calls Main from its TestMain.
package storagetest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"turnkeeper/internal/pgdev"
	"turnkeeper/jobs"
	"turnkeeper/storage"
)

const template = "turnkeeper_template"

var (
	start  sync.Once
	server *pgdev.Server
	failed error
	number atomic.Int64
)

// Main runs the tests of a package and stops the server, if one was started,
// when they are done. They fail when they leave a goroutine behind. It does not
// return.
func Main(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// A suite is a package's tests with their server.
type suite struct{ m *testing.M }

func (s suite) Run() int { return Run(s.m) }

// Run is Main for a package that has more to do after its tests: it returns
// the exit code.
func Run(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "turnkeeper-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	serverDir = dir
	defer os.RemoveAll(dir)
	defer func() {
		if server == nil {
			return
		}
		if err := server.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

var serverDir string // set by Main

func startServer() {
	ctx := context.Background()
	server, failed = pgdev.Open(ctx, pgdev.Options{
		Dir: serverDir, Quick: true, Settings: map[string]string{"max_connections": "300"},
	})
	if failed == nil {
		failed = makeTemplate(ctx)
	}
}

func makeTemplate(ctx context.Context) error {
	if err := admin(ctx, "create database "+template); err != nil {
		return err
	}
	store, err := storage.Open(ctx, storage.Options{URL: urlOf(template)})
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = Migrate(ctx, store)
	return err
}

// Migrate brings a schema up to date, River's tables included, as every process
// does. Any number of them may do it at once.
func Migrate(ctx context.Context, store *storage.Store) ([]storage.Migration, error) {
	return jobs.Migrate(ctx, store, zap.NewNop())
}

func admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

func urlOf(database string) string {
	u, err := url.Parse(server.URL())
	if err != nil {
		panic(err)
	}
	u.Path = "/" + database
	return u.String()
}

// URL makes a fresh, migrated database for the test and returns its address.
func URL(t testing.TB) string { return fresh(t, " template "+template) }

// EmptyURL makes a fresh database without a schema.
func EmptyURL(t testing.TB) string { return fresh(t, "") }

func fresh(t testing.TB, from string) string {
	t.Helper()
	if serverDir == "" {
		t.Fatal("the package's TestMain must call storagetest.Main or Run")
	}
	start.Do(startServer)
	if failed != nil {
		t.Fatal(failed)
	}
	name := fmt.Sprintf("test_%d", number.Add(1))
	if err := admin(t.Context(), "create database "+name+from); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin(context.Background(), "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	return urlOf(name)
}

// New opens a store on a fresh database. It is closed when the test ends.
func New(t testing.TB) *storage.Store {
	t.Helper()
	return Open(t, URL(t))
}

// Open opens a store on the database. It is closed when the test ends.
func Open(t testing.TB, url string) *storage.Store {
	t.Helper()
	store, err := storage.Open(t.Context(), storage.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}
