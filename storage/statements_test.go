package storage_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper/internal/golden"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/internal/dbsqlc"
)

// TestStatements shows for each query, and for functions of the schema, what it returns and writes in one world, in
// which no two values of different things are equal: see testdata/statements. Every row that it changes is shown with
// all columns that it changes, and no other row changes. A file consists of cases:
//
//	-- a comment
//	given STATEMENT            changes the world for this case
//	ListAgents                 calls a query; its arguments are the rest of a select statement
//	select turnkeeper.f(1)     or runs a statement
//	    what it returned, wrote, locked and rang
//
// A longer statement goes on in lines that begin with two spaces. The world is that of world.sql; each case is undone.
func TestStatements(t *testing.T) {
	testrun.Guard(t)
	t.Parallel()
	w := newWorld(t)
	played, all := 0, recordedStatements(t)
	for _, file := range slices.Sorted(maps.Keys(all)) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			w.t = t
			played++
			if got := w.play(all[file], w.run); golden.Updating() {
				golden.File(t, file, got)
			}
		})
	}
	if w.t = t; played == len(all) {
		w.complete()
	}
}

// recordedStatements returns the recorded cases by file.
func recordedStatements(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/statements/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[file] = string(text)
	}
	return all
}

// A statement is one case of a file.
type statement struct {
	given []string
	text  string
	did   string // lines
}

// lines returns what the case did, without the indent.
func (s statement) lines() (did []string) {
	for line := range strings.Lines(s.did) {
		did = append(did, strings.TrimSuffix(strings.TrimPrefix(line, "    "), "\n"))
	}
	return did
}

// play runs the cases of a file, and returns the file with what they did.
func (w *world) play(text string, run func(statement) (did []string)) string {
	w.t.Helper()
	var b strings.Builder
	var s statement
	ends := func() {
		if s.text != "" {
			got := ""
			for _, line := range run(s) {
				got += "    " + line + "\n"
			}
			if diff := cmp.Diff(strings.Split(s.did, "\n"), strings.Split(got, "\n")); diff != "" &&
				!golden.Updating() {
				w.t.Errorf("%s\n%s (-want +got):\n%s", strings.Join(s.given, "\n"), s.text, diff)
			}
			b.WriteString(got)
		}
		s = statement{}
	}
	for line := range strings.Lines(text) {
		switch written := line; {
		case strings.HasPrefix(line, "    "):
			s.did += line
			continue
		case strings.HasPrefix(line, "  ") && s.text != "":
			s.text += strings.TrimRight(written, "\n")
		case strings.HasPrefix(line, "  "):
			s.given[len(s.given)-1] += strings.TrimRight(written, "\n")
		case strings.HasPrefix(line, "given "):
			if s.text != "" {
				ends()
			}
			s.given = append(s.given, strings.TrimSpace(strings.TrimPrefix(line, "given ")))
		case line == "\n" || strings.HasPrefix(line, "--"):
			ends()
		default:
			if s.text != "" {
				ends()
			}
			s.text = strings.TrimRight(line, "\n")
		}
		b.WriteString(line)
	}
	ends()
	return b.String()
}

// A case may take less than a second, because its times are shown in whole seconds; and the clock of the process may be
// later than that of the database by some time.
const slow, early = 850 * time.Millisecond, 50 * time.Millisecond

// run runs a case, and undoes it.
func (w *world) run(s statement) (lines []string) {
	w.t.Helper()
	for range 20 {
		w.rebuild()
		if lines = w.once(s); w.took < slow {
			break
		}
	}
	return lines
}

func (w *world) once(s statement) (lines []string) {
	w.t.Helper()
	defer w.exec("rollback")
	w.exec(sequences + "; begin")
	var before map[string]bool // locked rows
	alters := strings.Contains(strings.Join(s.given, " "), "alter table")
	if len(s.given) > 0 {
		if !w.give(s.given) {
			return nil
		}
		if !alters {
			before = w.locks(w.other)
		}
	}
	w.warned, w.now = nil, time.Now()
	lines, err := w.call(s.text)
	if err == nil {
		_, err = w.conn.Exec(context.Background(), "set constraints all immediate")
	}
	w.took = time.Since(w.now)
	if err != nil {
		lines = []string{w.failure(err)}
	} else if w.wrote() {
		var locked map[string]bool
		if !alters { // then nobody else can read the table
			locked = w.locks(w.other)
			maps.DeleteFunc(locked, func(row string, _ bool) bool { return before[row] })
		}
		lines = append(lines, w.changes(locked)...)
		lines = append(lines, w.rang()...)
	}
	for _, warning := range w.warned {
		lines = append(lines, "warns "+w.plain(warning))
	}
	return lines
}

// give changes the world for a case.
func (w *world) give(given []string) bool {
	w.t.Helper()
	sql := "set local session_replication_role = replica; " + strings.Join(given, ";") +
		"; set local session_replication_role = origin"
	if _, err := w.conn.PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
		w.t.Errorf("%s: %v", strings.Join(given, "\n"), err)
		return false
	}
	if tables := w.touched(); len(tables) > 0 {
		var names []string
		for _, i := range tables {
			names = append(names, "'"+w.tables[i].name+"'")
		}
		w.exec("delete from tracked.before where name in (" + strings.Join(names,
			",") + "); insert into tracked.before " + w.rowsOf(tables))
	}
	return true
}

// failure returns an error as text.
func (w *world) failure(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return w.plain("error " + refused.Code + ": " + refused.Message)
	}
	return "error: " + err.Error()
}

// call runs the query or statement of a case, and returns what it returned.
func (w *world) call(text string) ([]string, error) {
	name, rest, _ := strings.Cut(text, " ")
	method := reflect.ValueOf(w.queries).MethodByName(name)
	if !method.IsValid() {
		return w.returned(text)
	}
	w.called[name] = true
	args := []reflect.Value{reflect.ValueOf(context.Background())}
	args = append(args, w.arguments(method.Type(), rest)...)
	w.now = time.Now()
	results := method.Call(args)
	if err, _ := results[len(results)-1].Interface().(error); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return []string{"returns no row"}, nil
		}
		return nil, err
	}
	if len(results) == 1 {
		return nil, nil
	}
	rows := results[0]
	if rows.Kind() != reflect.Slice || rows.Type().Elem().Kind() == reflect.Uint8 {
		return []string{"returns " + w.result("", rows)}, nil
	}
	lines := []string{}
	for i := range rows.Len() {
		lines = append(lines, "returns "+w.result("", rows.Index(i)))
	}
	if slices.Contains(unordered, name) {
		slices.Sort(lines)
	}
	if rows.Len() == 0 {
		lines = append(lines, "returns no row")
	}
	return lines, nil
}

// arguments evaluates the arguments of a query in the database: by name if it takes a struct, else in order.
func (w *world) arguments(method reflect.Type, list string) (args []reflect.Value) {
	w.t.Helper()
	for i := 1; i < method.NumIn(); i++ {
		arg := reflect.New(method.In(i)).Elem()
		args = append(args, arg)
		for field := 0; hasFields(arg) && field < arg.NumField(); field++ {
			if f := arg.Field(field); f.Kind() == reflect.Slice { // an array that is not given is empty, not null
				f.Set(reflect.MakeSlice(f.Type(), 0, 0))
			}
		}
	}
	if len(args) == 0 {
		return nil
	}
	rows, err := w.conn.Query(context.Background(), "select "+list, pgx.QueryExecModeExec)
	if err != nil {
		w.t.Errorf("%s: %v", list, err)
		return args
	}
	defer rows.Close()
	var into []any
	fields := rows.FieldDescriptions()
	for i, d := range fields {
		if hasFields(args[0]) {
			field := args[0].FieldByNameFunc(func(n string) bool {
				return strings.EqualFold(n, strings.ReplaceAll(d.Name, "_", ""))
			})
			if !field.IsValid() {
				w.t.Errorf("%s has no %s", args[0].Type(), d.Name)
				return args
			}
			into = append(into, field.Addr().Interface())
		} else {
			into = append(into, args[i].Addr().Interface())
		}
	}
	if !rows.Next() {
		w.t.Errorf("%s: %v", list, rows.Err())
	} else if err := rows.Scan(into...); err != nil {
		w.t.Errorf("%s: %v", list, err)
	}
	return args
}

// hasFields reports whether an argument is a struct with the arguments of a query.
func hasFields(arg reflect.Value) bool {
	return arg.Kind() == reflect.Struct && arg.Type() != reflect.TypeFor[time.Time]()
}

// returned runs a statement, and returns its rows as text.
func (w *world) returned(text string) (lines []string, err error) {
	rows, err := w.conn.Query(context.Background(), text, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, err
		}
		line := ""
		for i, d := range rows.FieldDescriptions() {
			if values[i] != nil && values[i] != "" {
				line += ", " + d.Name + " " + w.value(d.Name, values[i])
			}
		}
		lines = append(lines, "returns "+strings.TrimPrefix(line, ", "))
	}
	return lines, rows.Err()
}

// complete fails the test if a query is not called, a function not run, or a column not written.
func (w *world) complete() {
	for method := range reflect.TypeFor[*dbsqlc.Queries]().Methods() {
		if method.Name != "WithTx" && !w.called[method.Name] {
			w.t.Errorf("no case calls the query %s", method.Name)
		}
	}
	w.exec("select pg_stat_force_next_flush()")
	rows, _ := w.conn.Query(w.t.Context(),
		`select p.proname::text from pg_proc p join pg_language l on l.oid = p.prolang
		left join pg_stat_user_functions s on s.funcid = p.oid
		where p.pronamespace = 'turnkeeper'::regnamespace and l.lanname = 'plpgsql' and coalesce(s.calls, 0) = 0
		  and p.proname not like 'river%' order by 1`)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range names {
		if !slices.Contains(notRun, name) {
			w.t.Errorf("no case runs the function %s", name)
		}
	}
	for _, table := range w.tables {
		for _, column := range slices.Sorted(maps.Keys(table.types)) {
			name := strings.TrimPrefix(table.name, "turnkeeper.") + "." + column
			ours := !slices.Contains(table.key, column) && !strings.HasPrefix(name, "river_job.") &&
				!slices.Contains(notWritten, name)
			if ours && !w.written[name] {
				w.t.Errorf("no case writes %s", name)
			}
		}
	}
}

// unordered are the queries that return their rows in no order.
var unordered = []string{
	"AsksByID", "BlockersOf", "CallsSoFar", "ClaimsHeld", "EndsRequested", "Holders", "LostCalls", "MessagesWithWords",
	"PinMCPTools",
	"RepliesByID", "RepliesOfMessages", "RequestParts", "SeeWebhooks", "StatesOfTurns", "TakenGrants", "TurnForWorker",
	"TurnsOfGrants",
	"WatchedMessages",
}

// notRun are functions that no case runs: those that "turnctl check" calls for each row; and those that only raise
// errors, whose calls Postgres does not count.
var notRun = []string{"call_holds", "lease_holds", "refuse_new_answer"}

// notWritten are columns that only migrations write.
var notWritten = []string{"schema_migrations.applied_at", "schema_migrations.name", "schema_migrations.oldest_program",
	"settings.kept_for"}
