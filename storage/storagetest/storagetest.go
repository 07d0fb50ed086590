// Package storagetest gives each test a Postgres database: a new one, cloned from a migrated template, or an emptied
// one of an earlier test of the package (see Again). A package that uses it calls Main from TestMain.
//
// ServerVariable names the server (make test starts one for all packages); without it, the first
// test of a package starts one. It loses its data in a crash, so a test that stops the server needs
// its own.
package storagetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"turnkeeper/internal/pgdev"
	"turnkeeper/internal/testrun"
	"turnkeeper/jobs"
	"turnkeeper/migrations"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
)

// ServerVariable is the environment variable with the address of a Postgres server for tests, for a
// superuser.
const ServerVariable = "TURNKEEPER_TEST_POSTGRES"

// RunVariable is the environment variable with a folder that all packages of one run share. It is
// removed after the run.
const RunVariable = "TURNKEEPER_TEST_RUN"

// A server is the Postgres server with the databases of the tests.
type server struct {
	url      string
	template string        // the name of a database with the current schema
	pool     *pgxpool.Pool // creates and drops databases
	private  *pgdev.Server // nil if the server is shared
	patch    patch
	made     atomic.Int64 // number of databases created
	reused   reusables
}

var (
	inMain bool // the package has called Main
	start  = sync.OnceValues(startServer)
	opened atomic.Pointer[server]
)

// Main runs the tests of a package as testrun.Main does, and stops their server. It does not
// return.
func Main(m *testing.M) {
	inMain = true
	testrun.Main(suite{m})
}

// A suite is a package's tests with their server.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	code := s.m.Run()
	server := opened.Load()
	if server == nil {
		return code
	}
	if server.pool != nil {
		if err := server.dropReused(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if server.patch.sql != "" { // no other package uses this template
			_ = server.admin(context.Background(), "drop database if exists "+server.template)
		}
		server.pool.Close()
	}
	if server.private != nil {
		if err := server.private.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// StartServer starts a server for tests in a folder. Its data does not survive a crash. It plans no parallel queries:
// Check would start two processes for the few rows of a table that was never analyzed. Servers that tests have for
// themselves do. It loads PL/pgSQL once, and not in each of the many sessions.
func StartServer(ctx context.Context, dir string) (*pgdev.Server, error) {
	return pgdev.Open(ctx, pgdev.Options{Dir: dir, Quick: true, Settings: map[string]string{
		"max_connections": "1000", "max_parallel_workers_per_gather": "0", "shared_preload_libraries": "plpgsql",
	}})
}

func startServer() (*server, error) {
	ctx := context.Background()
	s := &server{}
	// Not os.Getenv: go test would record the variable as an input of the tests, and as it differs
	// in every run, never use a cached result.
	if url, set := syscall.Getenv(ServerVariable); set {
		s.url = url
	} else {
		private, err := StartServer(ctx, filepath.Join(os.TempDir(), "postgres"))
		if err != nil {
			return nil, err
		}
		s.private, s.url = private, private.URL()
	}
	opened.Store(s)
	var err error
	if s.patch, err = readPatch(); err != nil {
		return nil, err
	}
	if s.pool, err = pgxpool.New(ctx, s.url); err != nil {
		return nil, err
	}
	return s, s.makeTemplates(ctx)
}

// makeTemplates makes the template, and the one with the patch if there is one. Its name is a hash of
// the schema.
func (s *server) makeTemplates(ctx context.Context) error {
	hash, err := schemaHash()
	if err != nil {
		return err
	}
	s.template = "template_" + hash
	if err := s.makeTemplate(ctx, "", func(url string) error {
		return migrate(ctx, url)
	}); err != nil || s.patch.sql == "" {
		return err
	}
	from := s.template
	s.template = fmt.Sprintf("%s_%s_%d", from, s.patch.hash(), os.Getpid())
	return s.makeTemplate(ctx, from, func(url string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, s.patch.sql)
		return errors.Join(err, conn.Close(ctx))
	})
}

// makeTemplate makes the template if it does not exist yet, from another template or from an
// empty database.
func (s *server) makeTemplate(ctx context.Context, from string, fill func(url string) error) error {
	conn, err := pgx.Connect(ctx, s.url) // closing it releases the lock
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext($1))", s.template); err != nil {
		return err
	}
	var made bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", s.template).Scan(
		&made); err != nil || made {
		return err
	}
	begun := s.template + "_begun" // an unfinished template has another name
	if _, err := conn.Exec(ctx, "drop database if exists "+begun); err != nil {
		return err
	}
	create := "create database " + begun
	if from != "" {
		create += " template " + from
	}
	if _, err := conn.Exec(ctx, create); err != nil {
		return err
	}
	if err := fill(s.urlOf(begun)); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "alter database "+begun+" rename to "+s.template); err != nil {
		return err
	}
	// The first session writes a file from which later ones load the catalogs. Databases are copied with the file.
	first, err := pgx.Connect(ctx, s.urlOf(s.template))
	if err != nil {
		return err
	}
	return first.Close(ctx)
}

func migrate(ctx context.Context, url string) error {
	store, err := storage.Open(ctx, storage.Options{URL: url})
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = Migrate(ctx, store)
	return err
}

// schemaHash returns a hash of our migrations. It omits those of River, because a shared server lives
// for one run only.
func schemaHash() (string, error) {
	hash := sha256.New()
	err := fs.WalkDir(migrations.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.Files, path)
		fmt.Fprintln(hash, path, len(text))
		_, _ = hash.Write(text)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil))[:16], err
}

// Migrate migrates a database to the newest schema, River's tables included, as every program does.
// It may run concurrently.
func Migrate(ctx context.Context, store *storage.DB) ([]storage.Migration, error) {
	return jobs.Migrate(ctx, store, zap.NewNop())
}

func (s *server) admin(ctx context.Context, sql string) error {
	_, err := s.pool.Exec(ctx, sql)
	return err
}

func (s *server) urlOf(database string) string {
	u, err := url.Parse(s.url)
	if err != nil {
		panic(err)
	}
	u.Path = "/" + database
	return u.String()
}

// URL makes a new, migrated database for the test and returns its address.
func URL(t testing.TB) string { return fresh(t, true, "") }

// EmptyURL makes a new database without a schema and returns its address.
func EmptyURL(t testing.TB) string { return fresh(t, false, "") }

// LocaleURL is like URL, for a database of a locale of the system, such as C, in UTF-8.
func LocaleURL(t testing.TB, locale string) string {
	t.Helper()
	url := fresh(t, false, " template template0 encoding 'UTF8' locale '"+locale+"'")
	if err := migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return url
}

// fresh makes a database. with is added to the statement that creates it.
func fresh(t testing.TB, migrated bool, with string) string {
	t.Helper()
	if !inMain {
		t.Fatal("the package's TestMain must call storagetest.Main")
	}
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	name, err := s.create(t.Context(), migrated, with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.drop(name, migrated); err != nil {
			t.Error(err)
		}
	})
	return s.urlOf(name)
}

// create makes a database. with is added to the statement that creates it.
func (s *server) create(ctx context.Context, migrated bool, with string) (name string, err error) {
	name = fmt.Sprintf("test_%d_%d", os.Getpid(), s.made.Add(1)) // other packages use the server too
	create := "create database " + name + with
	if migrated {
		create += " template " + s.template + " strategy file_copy" // a third of the time of the default
	}
	return name, s.admin(ctx, create)
}

func (s *server) drop(name string, migrated bool) error {
	var err error
	if migrated {
		err = s.patch.report(context.Background(), s.urlOf(name))
	}
	return errors.Join(err, s.admin(context.Background(), "drop database "+name+" with (force)"))
}

// A DB is an open database of a test, with the methods of all stores.
type DB struct {
	*operate.Store
	*Journals
	*Grants
	URL string
	T   testing.TB // the test, or the subtest that runs
}

// Journals is the journal store of a DB.
type Journals = journal.Store

// Grants is the grant store of a DB.
type Grants = grants.Store

// New opens a new database. It is closed when the test ends.
func New(t testing.TB) *DB {
	t.Helper()
	return Open(t, URL(t))
}

// Open opens the database. It is closed when the test ends.
func Open(t testing.TB, url string) *DB {
	t.Helper()
	return OpenWith(t, storage.Options{URL: url})
}

// OpenWith opens the database of the options. It is closed when the test ends.
func OpenWith(t testing.TB, o storage.Options) *DB {
	t.Helper()
	db, err := storage.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return &DB{operate.New(db), journal.New(db), grants.New(db), o.URL, t}
}
