package storagetest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
)

// Patience is the timeout of every wait for an event, much longer than any event takes.
const Patience = time.Minute

// TB returns the test of the database.
func (db *DB) TB() testing.TB { return db.T }

// A Querier is a DB, or a type that embeds one.
type Querier interface {
	Pool() *pgxpool.Pool
	TB() testing.TB
}

// One returns the single value of a query.
func One[T any](d Querier, sql string, args ...any) T {
	d.TB().Helper()
	rows, _ := d.Pool().Query(d.TB().Context(), sql, args...)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		d.TB().Fatalf("%s: %v", sql, err)
	}
	return value
}

// List queries rows, each as a struct with a field for each column.
func List[T any](d Querier, sql string, args ...any) []T {
	d.TB().Helper()
	rows, _ := d.Pool().Query(d.TB().Context(), sql, args...)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		d.TB().Fatalf("%s: %v", sql, err)
	}
	return all
}

// Exec runs a statement.
func (db *DB) Exec(sql string, args ...any) {
	db.T.Helper()
	if _, err := db.Pool().Exec(db.T.Context(), sql, args...); err != nil {
		db.T.Fatalf("%s: %v", sql, err)
	}
}

// Await waits until a query returns true.
func (db *DB) Await(sql string, args ...any) {
	db.T.Helper()
	deadline := time.Now().Add(Patience)
	for !One[bool](db, "select ("+sql+") from pg_sleep(0.02)", args...) {
		if time.Now().After(deadline) {
			db.T.Fatalf("timeout waiting until %s", sql)
		}
	}
}

// Submit enqueues a message.
func (db *DB) Submit(agent, conversation, body string) turnkeeper.MessageID {
	db.T.Helper()
	id, err := db.Enqueue(db.T.Context(), turnkeeper.Submission{Agent: agent, Conversation: conversation, Body: body})
	if err != nil {
		db.T.Fatal(err)
	}
	return id
}
