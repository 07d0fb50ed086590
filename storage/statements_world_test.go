package storage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/storagetest"
)

// A world is a database with the rows of world.sql.
type world struct {
	t       *testing.T
	conn    *pgx.Conn
	other   *pgx.Conn // looks at locks
	queries *dbsqlc.Queries
	tables  []*table
	build   string          // makes its rows
	names   []string        // of the tables
	started time.Time       // when the server started
	began   time.Time       // the time of at('0')
	now     time.Time       // when the current case began
	took    time.Duration   // how long it took
	warned  []string        // by it
	called  map[string]bool // queries
	written map[string]bool // columns: table.column
}

// A table is one of the schema.
type table struct {
	name  string
	key   []string          // columns
	types map[string]string // of all columns
}

func newWorld(t *testing.T) *world {
	db := storagetest.New(t)
	db.NeverAnalyzed()
	config, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, called: map[string]bool{}, written: map[string]bool{}}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		w.warned = append(w.warned, fmt.Sprintf("%s %s: %s, %s %s", n.Severity, n.Code, n.Message, n.TableName,
			n.ColumnName))
	}
	config.RuntimeParams["timezone"] = "UTC"
	for _, conn := range []**pgx.Conn{&w.conn, &w.other} {
		if *conn, err = pgx.ConnectConfig(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*conn).Close(context.Background()) })
	}
	w.queries = dbsqlc.New(w.conn)
	if _, err := w.other.Exec(t.Context(), "set lock_timeout = '30 s'"); err != nil {
		t.Fatal(err)
	}
	rows, err := os.ReadFile("testdata/statements/world.sql")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.conn.QueryRow(t.Context(), "select pg_postmaster_start_time()").Scan(&w.started); err != nil {
		t.Fatal(err)
	}
	w.exec(tracked)
	w.readTables()
	var all []int
	for i, table := range w.tables {
		all, w.names = append(all, i), append(w.names, table.name)
	}
	emptied := slices.DeleteFunc(slices.Clone(w.names), func(n string) bool {
		return n == "turnkeeper.settings" || n == "turnkeeper.schema_migrations"
	})
	w.build = "begin; truncate tracked.began, tracked.before, " + strings.Join(emptied, ", ") +
		"; insert into tracked.began values (date_trunc('second', clock_timestamp()) + interval '123456 us');" +
		"set local session_replication_role = replica;" + string(rows) + "; insert into tracked.before " +
		w.rowsOf(all) + "; commit"
	return w
}

// tracked has the functions of world.sql. Functions of the schema call its pg_notify, because it comes first in the
// search path.
const tracked = `
	create schema tracked;
	create table tracked.began (at timestamptz);
	create table tracked.rung (n serial, bell text);
	create table tracked.before (name text, key text, row text);
	create function tracked.pg_notify(channel text, payload text) returns void language sql as
		$$ insert into tracked.rung (bell) values (channel || coalesce(' ' || nullif(payload, ''), '')) $$;
	create function tracked.at(i interval) returns timestamptz stable language sql as $$ select began.at + i from tracked.began $$;
	create function tracked.today() returns text stable language sql as
		$$ select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD') $$;
	create function tracked.u(n integer) returns uuid immutable language sql as
		$$ select ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid $$;
	set search_path = tracked, pg_catalog;
	set track_functions = 'all';
	set jit = off;`

func (w *world) exec(sql string) {
	w.t.Helper()
	if _, err := w.conn.PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
		w.t.Fatalf("%s: %v", sql[:min(len(sql), 300)], err)
	}
}

func (w *world) readTables() {
	w.t.Helper()
	rows, _ := w.conn.Query(w.t.Context(), `
		select c.oid::regclass::text, a.attname::text, format_type(a.atttypid, null),
			coalesce(array_position(i.indkey::smallint[], a.attnum), -1)
		from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
		left join pg_index i on i.indrelid = c.oid and i.indisprimary
		where c.relnamespace = 'turnkeeper'::regnamespace and c.relkind in ('r', 'p') and (c.relname not like 'river%' or c.relname = 'river_job')
		order by 1, 4, 2`)
	var name, column, kind string
	var place int
	_, err := pgx.ForEachRow(rows, []any{&name, &column, &kind, &place}, func() error {
		if len(w.tables) == 0 || w.tables[len(w.tables)-1].name != name {
			w.tables = append(w.tables, &table{name, nil, map[string]string{}})
		}
		last := w.tables[len(w.tables)-1]
		last.types[column] = kind
		if place >= 0 {
			last.key = append(last.key, column)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) table(name string) *table {
	return w.tables[slices.IndexFunc(w.tables, func(t *table) bool { return t.name == name })]
}

// sequences sets where ids begin that statements make.
const sequences = `select setval('turnkeeper.messages_id_seq', 190), setval('turnkeeper.turns_id_seq', 290),
	setval('turnkeeper.asks_id_seq', 390), setval('turnkeeper.replies_id_seq', 490), setval('turnkeeper.river_job_id_seq', 590),
	setval('turnkeeper.webhook_deliveries_id_seq', 690),
	setval('turnkeeper.api_tokens_id_seq', 790), setval('turnkeeper.failed_attempts_id_seq', 890),
	setval('turnkeeper.spend_reservations_id_seq', 990), setval('turnkeeper.mcp_login_revisions', 90)`

// fresh is how old a world may become: heartbeats in it must not.
const fresh = 8 * time.Second

// rebuild makes the world anew if it has become old.
func (w *world) rebuild() {
	w.t.Helper()
	if !w.began.IsZero() && time.Since(w.began) < fresh {
		return
	}
	w.exec(w.build)
	if err := w.conn.QueryRow(w.t.Context(), "select at from tracked.began").Scan(&w.began); err != nil {
		w.t.Fatal(err)
	}
}

// rowsOf returns a statement that reads the rows of tables.
func (w *world) rowsOf(tables []int) string {
	var all []string
	for _, i := range tables {
		table := w.tables[i]
		key := "''"
		if len(table.key) > 0 {
			key = "concat_ws(' ', x." + strings.Join(table.key, ", x.") + ")"
		}
		all = append(all, fmt.Sprintf("select '%s' as name, %s as key, to_jsonb(x)::text as row from %s x", table.name,
			key, table.name))
	}
	return strings.Join(all, " union all ")
}

// touched returns the tables that the transaction has written to, as far as Postgres has counted that.
func (w *world) touched() []int {
	w.t.Helper()
	rows, _ := w.conn.Query(context.Background(), `
		select (i - 1)::integer from unnest($1::text[]) with ordinality t (name, i), lateral (select name::regclass::oid as id offset 0) c
		where pg_stat_get_xact_tuples_inserted(id) + pg_stat_get_xact_tuples_updated(id) + pg_stat_get_xact_tuples_deleted(id) > 0`, w.names)
	found, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// wrote reports whether the transaction has written anything.
func (w *world) wrote() (wrote bool) {
	w.t.Helper()
	err := w.conn.QueryRow(context.Background(), "select pg_current_xact_id_if_assigned() is not null").Scan(&wrote)
	if err != nil {
		w.t.Fatal(err)
	}
	return wrote
}

// rang returns the notifications of a case.
func (w *world) rang() []string {
	rows, _ := w.conn.Query(context.Background(), "select 'rings ' || bell from tracked.rung order by n")
	bells, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	return bells
}

// changes returns the rows that differ, with the columns that do, and of the locked rows those that do not.
func (w *world) changes(locked map[string]bool) (lines []string) {
	w.t.Helper()
	defer func() {
		for _, row := range slices.Sorted(maps.Keys(locked)) {
			lines = append(lines, "locks "+w.plain(strings.TrimPrefix(row, "turnkeeper.")))
		}
	}()
	tables := w.touched()
	if len(tables) == 0 {
		return nil
	}
	var written []string
	for _, i := range tables {
		written = append(written, w.tables[i].name)
	}
	rows, _ := w.conn.Query(context.Background(),
		"select coalesce(b.name, a.name), coalesce(b.key, a.key), coalesce(b.row, ''), coalesce(a.row, '')"+
			" from (select * from tracked.before where name = any($1)) b full join ("+w.rowsOf(tables)+
			") a on (a.name, a.key) = (b.name, b.key)"+
			" where b.row is distinct from a.row order by 1, 2", pgx.QueryExecModeExec, written)
	var name, key, before, after string
	_, err := pgx.ForEachRow(rows, []any{&name, &key, &before, &after}, func() error {
		of := w.table(name)
		delete(locked, name+" "+key)
		line := strings.TrimSpace(strings.TrimPrefix(name, "turnkeeper.") + " " + w.plain(key))
		old, row := values(before), values(after)
		switch {
		case row == nil:
			lines = append(lines, "deletes "+line)
			return nil
		case old == nil:
			line = "inserts " + line
		default:
			line = "updates " + line
		}
		for _, column := range slices.Sorted(maps.Keys(row)) {
			if slices.Contains(of.key, column) || reflect.DeepEqual(old[column], row[column]) {
				continue
			}
			w.written[strings.TrimPrefix(name, "turnkeeper.")+"."+column] = true
			line += ", " + column
			if old != nil {
				line += " " + w.column(of, column, old[column]) + " ->"
			}
			line += " " + w.column(of, column, row[column])
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return lines
}

// locks returns the rows, by table and key, that a connection cannot lock now to change them.
func (w *world) locks(conn *pgx.Conn) map[string]bool {
	w.t.Helper()
	var free, named []string
	for i, table := range w.tables {
		if len(table.key) > 0 {
			all, name := w.rowsOf([]int{i}), fmt.Sprint("t", i)
			free = append(free, name+" as ("+strings.Replace(all, ", to_jsonb(x)::text as row", "",
				1)+" for no key update skip locked)")
			named = append(named, "select * from "+name)
		}
	}
	rows, _ := conn.Query(context.Background(), "with "+strings.Join(free, ", ")+
		" select name || ' ' || key from tracked.before where key <> ''"+
		" except select name || ' ' || key from ("+strings.Join(named, " union all ")+") f")
	held, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]bool{}
	for _, row := range held {
		all[row] = true
	}
	return all
}

// values returns the columns of a row.
func values(row string) (all map[string]any) {
	if row == "" {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(row))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		panic(err)
	}
	return all
}

// column returns a value of a column as text.
func (w *world) column(of *table, column string, v any) string {
	if text, ok := v.(string); ok && strings.HasPrefix(of.types[column], "timestamp") {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return w.when(at)
		}
	}
	if text, ok := v.(string); ok && of.types[column] == "interval" && strings.Contains(text, ".") {
		var d time.Duration
		if err := w.conn.TypeMap().Scan(pgtype.IntervalOID, pgx.TextFormatCode, []byte(text), &d); err == nil {
			return w.lasts(d)
		}
	}
	return w.value(column, v)
}
