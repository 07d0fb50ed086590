package storagetest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
)

// Patience bounds every wait for an event: far above what any takes.
const Patience = time.Minute

// TB returns the test that the database is of.
func (d *DB) TB() testing.TB { return d.t }

// A Querier is a DB, or what embeds one.
type Querier interface {
	Pool() *pgxpool.Pool
	TB() testing.TB
}

// One returns the single value that a query finds.
func One[T any](d Querier, sql string, args ...any) T {
	d.TB().Helper()
	rows, _ := d.Pool().Query(d.TB().Context(), sql, args...)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		d.TB().Fatalf("%s: %v", sql, err)
	}
	return value
}

// Exec runs a statement.
func (d *DB) Exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.Pool().Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

// Await returns when a query finds true.
func (d *DB) Await(sql string, args ...any) {
	d.t.Helper()
	deadline := time.Now().Add(Patience)
	for !One[bool](d, "select ("+sql+") from pg_sleep(0.02)", args...) {
		if time.Now().After(deadline) {
			d.t.Fatalf("not in time: %s", sql)
		}
	}
}

// Submit puts a message into the inbox.
func (d *DB) Submit(agent, conversation, body string) turnkeeper.MessageID {
	d.t.Helper()
	id, err := d.Enqueue(d.t.Context(), turnkeeper.Submission{Agent: agent, Conversation: conversation, Body: body})
	if err != nil {
		d.t.Fatal(err)
	}
	return id
}
