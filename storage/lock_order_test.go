package storage_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/testrun"
)

// TestNoDeadlocks checks that queries lock rows in one order. For each recorded query and each table in which it locks
// rows, another session locks those rows first; while the query blocks, the test lists the row locks that it holds in
// other tables. It reports two queries if each can block on a table in which the other holds row locks, unless both
// hold row locks in a third table, mostly turns: the second then blocks there.
func TestNoDeadlocks(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	w := newLockWorld(t)
	var all []lockWait
	for _, text := range recordedStatements(t) {
		w.play(text, func(s statement) []string {
			if w.isQuery(s) {
				all = append(all, w.waits(s)...)
			}
			return s.lines()
		})
	}
	used := map[string]bool{} // exceptions
	found := map[string]bool{}
	for i, a := range all {
		for _, b := range all[:i] {
			if !mayDeadlock(a, b) {
				continue
			}
			if by := exception(a, b); by != "" {
				used[by] = true
			} else if pair := a.query + " " + b.query; !found[pair] {
				found[pair] = true
				t.Errorf("these two may deadlock:\n%s\n%s", a, b)
			}
		}
	}
	for _, query := range slices.Concat(turnIsLocked, ofClosedMessages, []string{ofFreeLanes}) {
		if !used[query] {
			t.Errorf("no deadlock is excluded because of %s: remove it", query)
		}
	}

	// A query that locks in another order is found.
	w.exec(`create function tracked.backwards() returns void language sql begin atomic;
		update turnkeeper.leases set failures = failures where lane = 'clerk';
		update turnkeeper.turns set losses = losses where id = 201;
	end`)
	backwards := w.waits(statement{text: "select tracked.backwards()"})
	deadlocks := func(a lockWait) bool {
		return slices.ContainsFunc(backwards, func(b lockWait) bool { return mayDeadlock(a, b) })
	}
	if !slices.ContainsFunc(all, deadlocks) {
		t.Errorf("a query that locks leases before turns is not found: %v", backwards)
	}
}

// turnIsLocked lists queries whose transaction has already locked the turn.
var turnIsLocked = []string{"SettleCalls", "StopAwaiting", "NoteFault", "NoteModels"}

// ofClosedMessages lists queries that block only on rows of closed messages and of their turns. Other queries do not
// block on such rows while they hold row locks.
var ofClosedMessages = []string{"Purge", "Expire", "RetryMessage"}

// ofFreeLanes is the query that blocks only on free leases and queued turns; it skips locked messages. A transaction
// that has locked a queued turn blocks on none of these leases and messages.
const ofFreeLanes = "Grant"

// exception returns the query whose exception rules out that a and b deadlock, or "" if none does.
func exception(a, b lockWait) string {
	switch {
	case a.query == ofFreeLanes || b.query == ofFreeLanes:
		return ofFreeLanes
	case slices.Contains(ofClosedMessages, a.query) && !slices.Contains(ofClosedMessages, b.query),
		slices.Contains(turnIsLocked, a.query):
		return a.query
	case slices.Contains(ofClosedMessages, b.query) && !slices.Contains(ofClosedMessages, a.query),
		slices.Contains(turnIsLocked, b.query):
		return b.query
	}
	return ""
}

// A lockWait describes a query that blocks on a row lock.
type lockWait struct {
	text, query string
	table       string          // on which it blocks
	holds       map[string]bool // tables in which it holds row locks
	locked      map[string]bool // holds, and the tables that the case changed before the query
}

func (l lockWait) String() string {
	return fmt.Sprintf("%s\n  waits for %s, and holds %s", l.text, l.table,
		strings.Join(slices.Sorted(maps.Keys(l.holds)), ", "))
}

// mayDeadlock reports whether each of two queries can block on a table in which the other holds row locks.
func mayDeadlock(a, b lockWait) bool {
	for table := range a.locked {
		if b.locked[table] {
			return false
		}
	}
	return a.holds[b.table] && b.holds[a.table]
}

// A lockWorld has a third connection, which inspects row locks while a query blocks.
type lockWorld struct {
	*world
	third *pgx.Conn
}

func newLockWorld(t *testing.T) lockWorld {
	w := lockWorld{world: newWorld(t)}
	var err error
	if w.third, err = pgx.ConnectConfig(t.Context(), w.other.Config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.third.Close(context.Background()) })
	return w
}

// isQuery reports whether a case calls a query, and locks no table exclusively.
func (w lockWorld) isQuery(s statement) bool {
	name, _, _ := strings.Cut(s.text, " ")
	return reflect.ValueOf(w.queries).MethodByName(name).IsValid() &&
		!strings.Contains(strings.Join(s.given, " "), "alter table")
}

// waits blocks a case on each table in which it locks rows, and returns what it holds then.
func (w lockWorld) waits(s statement) (all []lockWait) {
	w.t.Helper()
	var before, locked map[string]bool
	w.undone(s, func() {
		before = w.locks(w.third)
		if _, err := w.call(s.text); err == nil && w.wrote() {
			locked = w.locks(w.third)
		}
	})
	keys := map[string][]string{} // of the rows that it locks, by table
	for row := range locked {
		if !before[row] {
			_, key, _ := strings.Cut(row, " ")
			keys[tableOf(row)] = append(keys[tableOf(row)], key)
		}
	}
	if len(keys) < 2 {
		return nil
	}
	query, _, _ := strings.Cut(s.text, " ")
	for table, of := range keys {
		l := lockWait{text: strings.Join(append(s.given, s.text), "\n"), query: query, table: table,
			holds: map[string]bool{}, locked: map[string]bool{}}
		for row := range before {
			l.locked[tableOf(row)] = true
		}
		w.undone(s, func() {
			for row := range w.heldWhile(s.text, table, of) {
				l.locked[tableOf(row)] = true
				if !before[row] {
					l.holds[tableOf(row)] = true
				}
			}
		})
		if len(l.holds) > 0 {
			all = append(all, l)
		}
	}
	return all
}

// tableOf returns the table of a row that locks returned.
func tableOf(row string) string {
	name, _, _ := strings.Cut(row, " ")
	return name
}

// undone calls do in a transaction with the changes of a case, and rolls it back.
func (w lockWorld) undone(s statement, do func()) {
	w.t.Helper()
	w.rebuild()
	w.exec(sequences + "; begin")
	defer w.exec("rollback")
	if len(s.given) == 0 || w.give(s.given) {
		do()
	}
}

// heldWhile returns the rows of other tables that a statement has locked when it blocks on these rows of a table, or
// nil if it does not block.
func (w lockWorld) heldWhile(text, table string, keys []string) (held map[string]bool) {
	w.t.Helper()
	ctx := context.Background()
	tx, err := w.other.Begin(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	columns := w.table(table).key
	_, err = tx.Exec(ctx, fmt.Sprintf("select from %s x where concat_ws(' ', x.%s) = any($1) for no key update skip locked",
		table, strings.Join(columns, ", x.")), keys)
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = w.call(text) // it failed before if it does
	}()
	for waits, over := false, false; !waits && !over; {
		select {
		case <-ended:
			over = true
		default:
			if err := w.third.QueryRow(ctx, "select $1 = any(pg_blocking_pids($2))",
				w.other.PgConn().PID(), w.conn.PgConn().PID()).Scan(&waits); err != nil {
				w.t.Fatal(err)
			}
			if waits {
				held = w.locks(w.third)
			}
		}
	}
	if err := tx.Rollback(ctx); err != nil {
		w.t.Fatal(err)
	}
	<-ended
	maps.DeleteFunc(held, func(row string, _ bool) bool { return tableOf(row) == table })
	return held
}
