package storagetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
)

// ApplicationName is the application_name of connections that belong to a test, not to a program under test.
const ApplicationName = "the test"

// A Client is what the tests of a package keep connected to a database that they use one after the other.
type Client interface {
	Pools() []*pgxpool.Pool // all that have sessions in the database
	AsNew() bool            // it keeps nothing of the test but connections
	Close()
}

// Again returns a client of a database for one test, with the database's address. It is for many short tests: it gives
// the test the database and the client of an earlier test of the package, with all tables and sequences as in a new
// database. Making a database and connections costs several times what such a test does, because each new connection
// plans each statement. A database is not used again if a test failed with it, changed the schema, or left a session or
// traces in the client. open makes the client for a new database, in which the SQL of prepare has run.
func Again[C Client](t testing.TB, prepare string, open func(ctx context.Context, url string) (C, error)) (C, string) {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	r := s.reused.take(func(r *reusable) bool {
		_, same := r.client.(C)
		return same && r.prepare == prepare
	})
	if r == nil {
		ctx := context.WithoutCancel(t.Context())
		r, err = s.newReusable(ctx, prepare, func(url string) (Client, error) { return open(ctx, url) })
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() || s.patch.sql != "" { // the report of a patch is about a whole database
			s.dropReusable(t, r)
		} else if err := r.reset(context.Background()); err != nil {
			t.Logf("the database is not used again: %v", err)
			s.dropReusable(t, r)
		} else {
			s.reused.put(r)
		}
	})
	url := s.urlOf(r.name)
	s.reused.urls.Store(url, true)
	return r.client.(C), url
}

// mustBeNew fails the test if another one may have used its database: rows that were deleted still take pages.
func mustBeNew(db *DB) {
	db.T.Helper()
	if _, found := opened.Load().reused.urls.Load(db.URL); found {
		db.T.Fatal("a test of plans needs a new database: see New and NewWithAgents")
	}
}

// Reused is like New, with a database of Again. prepare is SQL that runs in a new database before it is opened.
func Reused(t testing.TB, prepare string) *DB {
	t.Helper()
	c, url := Again(t, prepare, func(ctx context.Context, url string) (storeClient, error) {
		db, err := storage.Open(ctx, storage.Options{URL: url})
		return storeClient{db}, err
	})
	return &DB{operate.New(c.db), journal.New(c.db), grants.New(c.db), url, t}
}

// A storeClient is the client of Reused.
type storeClient struct{ db *storage.DB }

func (c storeClient) Pools() []*pgxpool.Pool { return PoolsOf(c.db) }

// AsNew reports whether the server refused the test nothing: a store counts that.
func (c storeClient) AsNew() bool { return len(c.db.Refused())+len(c.db.RefusedAttempts()) == 0 }

func (c storeClient) Close() { c.db.Close() }

// PoolsOf returns the pools of a store, as a Client does.
func PoolsOf(db *storage.DB) []*pgxpool.Pool {
	return []*pgxpool.Pool{db.Core().Pool, db.Core().Finish, db.Core().Queue}
}

// reusables are the databases that wait for the next call of Again.
type reusables struct {
	mu   sync.Mutex
	free []*reusable
	urls sync.Map // the addresses of these and of those in use
}

func (all *reusables) put(r *reusable) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.free = append(all.free, r)
}

// take returns the first database that fits, or nil if there is none.
func (all *reusables) take(fits func(*reusable) bool) *reusable {
	all.mu.Lock()
	defer all.mu.Unlock()
	i := slices.IndexFunc(all.free, fits)
	if i < 0 {
		return nil
	}
	r := all.free[i]
	all.free = slices.Delete(all.free, i, i+1)
	return r
}

// A reusable is a database that one test after the other uses.
type reusable struct {
	name, prepare string
	client        Client
	admin         *pgx.Conn // empties the tables
	state         string    // what schemaState returned when it was new
}

func (s *server) newReusable(ctx context.Context, prepare string,
	open func(url string) (Client, error)) (*reusable, error) {
	name, err := s.create(ctx, true, "")
	if err != nil {
		return nil, err
	}
	if prepare != "" {
		conn, err := pgx.Connect(ctx, s.urlOf(name))
		if err != nil {
			return nil, err
		}
		_, err = conn.Exec(ctx, prepare)
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			return nil, err
		}
	}
	r := &reusable{name: name, prepare: prepare}
	cfg, err := pgx.ParseConfig(s.urlOf(name))
	if err != nil {
		return nil, err
	}
	maps.Copy(cfg.RuntimeParams, map[string]string{
		"application_name": ApplicationName, "search_path": "turnkeeper",
		"session_replication_role": "replica", // without triggers and foreign keys
	})
	if r.admin, err = pgx.ConnectConfig(ctx, cfg); err != nil { // now, with the settings of prepare
		return nil, err
	}
	if r.client, err = open(s.urlOf(name)); err != nil {
		return nil, err
	}
	if err = r.prepareReset(ctx); err != nil {
		return nil, err
	}
	r.state, err = r.schemaState(ctx)
	return r, err
}

// prepareReset makes a function that makes tables and sequences what they are now, whose statements the session plans
// once, and an event trigger that counts changes of the schema.
func (r *reusable) prepareReset(ctx context.Context) error {
	statements, err := r.emptying(ctx)
	if err != nil {
		return err
	}
	_, err = r.admin.Exec(ctx, `create schema reuse;
		create sequence reuse.changes;
		create function reuse.note() returns event_trigger language plpgsql security definer as $$
		begin
			perform nextval('reuse.changes');
		end $$;
		create event trigger note_changes on ddl_command_end execute function reuse.note();
		alter event trigger note_changes enable always; -- for sessions without triggers
		select nextval('reuse.changes'); -- from now on each change is seen in its last value
		create function pg_temp.empty() returns void language plpgsql as $empty$
		begin
			`+strings.Join(statements, ";\n")+`;
		end $empty$`)
	return err
}

// emptying returns a statement for each table and sequence.
func (r *reusable) emptying(ctx context.Context) (statements []string, err error) {
	rows, _ := r.admin.Query(ctx,
		"select oid::regclass::text from pg_class where relnamespace = 'turnkeeper'::regnamespace and relkind in ('r', 'p')")
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		statements = append(statements, "delete from "+table)
		var refill string // few tables have rows in a new database
		err := r.admin.QueryRow(ctx, fmt.Sprintf(`select case when count(*) = 0 then '' else
			format('insert into %[1]s select * from jsonb_populate_recordset(null::%[1]s, %%L)', jsonb_agg(to_jsonb(t))) end
			from %[1]s t`, table)).Scan(&refill)
		if err != nil {
			return nil, err
		}
		if refill != "" {
			statements = append(statements, refill)
		}
	}
	rows, _ = r.admin.Query(ctx,
		`select format('perform setval(%L, %s, false)', seqrelid::regclass, seqstart) from pg_sequence
		where seqrelid in (select oid from pg_class where relnamespace = 'turnkeeper'::regnamespace)`)
	sequences, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return append(statements, sequences...), err
}

// schemaState returns a text that changes when the schema or a setting of the database is changed, and when tables are
// vacuumed or analyzed.
func (r *reusable) schemaState(ctx context.Context) (state string, err error) {
	err = r.admin.QueryRow(ctx, `select concat_ws(' ', (select last_value from reuse.changes),
		(select sum(reltuples) from pg_class), -- vacuum changes them
		(select (count(*), max(xmin::text::bigint))::text from pg_db_role_setting
			where setdatabase = (select oid from pg_database where datname = current_database())))`).Scan(&state)
	return state, err
}

// reset makes the database as it was when it was new.
func (r *reusable) reset(ctx context.Context) error {
	if err := r.awaitAlone(ctx); err != nil {
		return err
	}
	if !r.client.AsNew() {
		return errors.New("its client remembers what the test did")
	}
	for _, pool := range r.client.Pools() {
		if err := resetSessions(ctx, pool); err != nil {
			return err
		}
	}
	if state, err := r.schemaState(ctx); err != nil || state != r.state {
		return errors.Join(fmt.Errorf("its schema was changed from %s to %s", r.state, state), err)
	}
	_, err := r.admin.Exec(ctx, "select pg_temp.empty()")
	return err
}

// resetSessions undoes the settings that the test made in the sessions of a pool, but for their names.
func resetSessions(ctx context.Context, pool *pgxpool.Pool) (err error) {
	idle := pool.AcquireAllIdle(ctx)
	if held := int(pool.Stat().TotalConns()) - len(idle); held > 0 {
		err = fmt.Errorf("the test did not release %d connections", held)
	}
	for _, conn := range idle {
		name := conn.Conn().PgConn().ParameterStatus("application_name")
		_, failed := conn.Exec(ctx, "reset all; set application_name = '"+name+"'")
		err = errors.Join(err, failed)
		conn.Release()
	}
	return err
}

// awaitAlone returns when the client's sessions and this one are the only ones, and do nothing. The server notices a
// moment later that a connection was closed.
func (r *reusable) awaitAlone(ctx context.Context) error {
	const limit = 10 * time.Second
	for began := time.Now(); ; {
		var own, sessions, busy int
		for _, pool := range r.client.Pools() {
			own += int(pool.Stat().TotalConns())
		}
		err := r.admin.QueryRow(ctx, `select count(*), count(*) filter (where state <> 'idle') from pg_stat_activity
			where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`).Scan(&sessions, &busy)
		if err != nil {
			return err
		}
		if sessions == own && busy == 0 {
			return nil
		}
		if time.Since(began) > limit {
			return fmt.Errorf("it has %d sessions instead of %d, and %d are busy", sessions, own, busy)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *server) dropReusable(t testing.TB, r *reusable) {
	t.Helper()
	if err := s.drop(r.name, true); err != nil {
		t.Error(err)
	}
	go r.close() // it waits for connections that a test which failed still holds
}

// dropReused drops the databases that no test uses.
func (s *server) dropReused() (err error) {
	for _, r := range s.reused.free {
		r.close()
		err = errors.Join(err, s.drop(r.name, true))
	}
	return err
}

func (r *reusable) close() {
	r.client.Close()
	_ = r.admin.Close(context.Background())
}
