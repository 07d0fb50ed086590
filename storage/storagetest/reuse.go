package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
)

// Reused is like New, for suites of many short tests: it gives the test the database and the connections of an earlier
// test of the package, with all tables and sequences as in a new database. Making a database and connections costs
// several times what such a test does, because each new connection plans each statement. A database is not used again
// if a test failed with it, changed the schema, or left a session. prepare is SQL that runs in a new database before it
// is opened.
func Reused(t testing.TB, prepare string) *DB {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	r := s.reused.take(prepare)
	if r == nil {
		if r, err = s.newReusable(context.WithoutCancel(t.Context()), prepare); err != nil {
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
	return &DB{operate.New(r.db), journal.New(r.db), grants.New(r.db), s.urlOf(r.name), t}
}

// reusables are the databases that wait for the next call of Reused.
type reusables struct {
	mu   sync.Mutex
	free []*reusable
}

func (all *reusables) put(r *reusable) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.free = append(all.free, r)
}

// take returns a database that was made with the same SQL, or nil if there is none.
func (all *reusables) take(prepare string) *reusable {
	all.mu.Lock()
	defer all.mu.Unlock()
	i := slices.IndexFunc(all.free, func(r *reusable) bool { return r.prepare == prepare })
	if i < 0 {
		return nil
	}
	r := all.free[i]
	all.free = slices.Delete(all.free, i, i+1)
	return r
}

// A reusable is an open database that one test after the other uses.
type reusable struct {
	name, prepare string
	db            *storage.DB
	admin         *pgx.Conn // empties the tables
	schema        string    // what schemaState returned when it was new
	empty         []string  // statements that make tables and sequences what they were then
}

func (s *server) newReusable(ctx context.Context, prepare string) (*reusable, error) {
	name, err := s.create(ctx, true, "")
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, s.urlOf(name))
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, prepare)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, err
	}
	r := &reusable{name: name, prepare: prepare}
	if r.admin, err = pgx.Connect(ctx, s.urlOf(name)); err != nil { // now, with the settings of prepare
		return nil, err
	}
	if _, err := r.admin.Exec(ctx, "set search_path = turnkeeper; set session_replication_role = replica"); err != nil {
		return nil, err
	}
	if r.db, err = storage.Open(ctx, storage.Options{URL: s.urlOf(name)}); err != nil {
		return nil, err
	}
	if r.schema, err = r.schemaState(ctx); err != nil {
		return nil, err
	}
	r.empty, err = r.emptying(ctx)
	return r, err
}

// emptying returns a statement for each table and sequence.
func (r *reusable) emptying(ctx context.Context) (statements []string, err error) {
	rows, _ := r.db.Pool().Query(ctx,
		"select oid::regclass::text from pg_class where relnamespace = 'turnkeeper'::regnamespace and relkind in ('r', 'p')")
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		statements = append(statements, "delete from "+table)
		var refill string // few tables have rows in a new database
		err := r.db.Pool().QueryRow(ctx, fmt.Sprintf(`select case when count(*) = 0 then '' else
			format('insert into %[1]s select * from jsonb_populate_recordset(null::%[1]s, %%L)', jsonb_agg(to_jsonb(t))) end
			from %[1]s t`, table)).Scan(&refill)
		if err != nil {
			return nil, err
		}
		if refill != "" {
			statements = append(statements, refill)
		}
	}
	rows, _ = r.db.Pool().Query(ctx,
		"select format('select setval(%L, %s, false)', seqrelid::regclass, seqstart) from pg_sequence")
	sequences, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return append(statements, sequences...), err
}

// schemaState returns a text that changes when something in the catalogs is added, changed or removed.
func (r *reusable) schemaState(ctx context.Context) (state string, err error) {
	var parts []string
	for _, catalog := range []string{
		"attrdef", "attribute", "class", "constraint", "event_trigger", "extension", "index", "namespace", "policy",
		"proc", "rewrite",
		"trigger", "type",
		"db_role_setting where setdatabase = (select oid from pg_database where datname = current_database())",
	} {
		parts = append(parts, "(select (count(*), max(xmin::text::bigint))::text from pg_"+catalog+")")
	}
	err = r.db.Pool().QueryRow(ctx, "select concat_ws(' ', "+strings.Join(parts, ", ")+")").Scan(&state)
	return state, err
}

// reset makes the database as it was when it was new.
func (r *reusable) reset(ctx context.Context) error {
	if err := r.awaitAlone(ctx); err != nil {
		return err
	}
	// Without triggers and foreign keys. Setting that on a connection of the store would make it plan all statements
	// again.
	if _, err := r.admin.Exec(ctx, strings.Join(r.empty, "; ")); err != nil {
		return err
	}
	if state, err := r.schemaState(ctx); err != nil || state != r.schema {
		return errors.Join(fmt.Errorf("its schema was changed from %s to %s", r.schema, state), err)
	}
	return nil
}

// awaitAlone returns when the store's own sessions are the only ones, and do nothing. The server notices a moment later
// that a connection was closed.
func (r *reusable) awaitAlone(ctx context.Context) error {
	const limit = 10 * time.Second
	for began := time.Now(); ; {
		conn, err := r.db.Pool().Acquire(ctx)
		if err != nil {
			return err
		}
		own := 1 // admin
		for _, pool := range r.db.Pools() {
			own += pool.Used + pool.Idle
		}
		var sessions, busy int
		err = conn.QueryRow(ctx, `select count(*), count(*) filter (where state <> 'idle' and pid <> pg_backend_pid())
			from pg_stat_activity, pg_sleep(0) where datname = current_database() and backend_type = 'client backend'`).Scan(&sessions, &busy)
		conn.Release()
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
	r.close()
	if err := s.drop(r.name, true); err != nil {
		t.Error(err)
	}
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
	r.db.Close()
	_ = r.admin.Close(context.Background())
}
