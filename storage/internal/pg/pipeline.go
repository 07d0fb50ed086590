package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/storage/internal/dbsqlc"
)

// A Pipeline collects statements and sends them in one round trip. Postgres runs them as
// one transaction: everything up to the protocol's Sync. It takes the place of a
// connection in the generated code, for statements without rows only.
type Pipeline struct {
	batch pgx.Batch
}

// A Sender is a pool, a connection or a transaction.
type Sender interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

// Queries returns the generated statements; calling one queues it.
func (p *Pipeline) Queries() *dbsqlc.Queries { return dbsqlc.New(p) }

// Exec queues the statement. It never fails: errors come from Send.
func (p *Pipeline) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	p.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

var errPipelineRows = errors.New("a pipeline sends only statements without rows")

// Query fails.
func (p *Pipeline) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errPipelineRows
}

// QueryRow returns a row that fails.
func (p *Pipeline) QueryRow(context.Context, string, ...any) pgx.Row { return noRow{} }

type noRow struct{}

func (noRow) Scan(...any) error { return errPipelineRows }

// Queue queues a generated statement with rows. read receives the generated statements: the first one
// that it calls, whichever it is, reads these rows.
func (p *Pipeline) Queue(read func(*dbsqlc.Queries) error, sql string, args ...any) {
	p.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error { return read(dbsqlc.New(answered{rows: rows})) })
}

// Rows queues a generated statement with rows. query calls it: now, to queue it, when it fails, and again to read the
// answer.
func (p *Pipeline) Rows(query func(*dbsqlc.Queries) error) error {
	var r recorder
	if err := query(dbsqlc.New(&r)); !errors.Is(err, errPipelineRows) {
		return err
	}
	p.Queue(query, r.sql, r.args...)
	return nil
}

// A recorder is a connection that records a query instead of sending it.
type recorder struct {
	noConnection
	sql  string
	args []any
}

func (r *recorder) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	r.sql, r.args = sql, args
	return nil, errPipelineRows
}

type noConnection struct{}

func (noConnection) QueryRow(context.Context, string, ...any) pgx.Row { return noRow{} }

func (noConnection) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errPipelineRows
}

// answered is a connection that has the answer to a query already.
type answered struct {
	noConnection
	rows pgx.Rows
}

func (a answered) Query(context.Context, string, ...any) (pgx.Rows, error) { return a.rows, nil }

// Send runs the queued statements, all or none. It calls sent after it has sent them and
// before it reads the answer.
func (p *Pipeline) Send(ctx context.Context, to Sender, sent func()) error {
	results := to.SendBatch(ctx, &p.batch)
	sent()
	return Translate(results.Close()) // the first error of any statement
}

var errUndone = errors.New("the transaction was undone: one of its statements had failed")

// committed returns errUndone if the answer to a COMMIT says that the transaction was
// rolled back, because a statement in it had failed.
func committed(answer pgconn.CommandTag) error {
	if answer.String() != "COMMIT" {
		return errUndone
	}
	return nil
}

// CommitTx commits the transaction that conn has open. It calls sent after it has sent
// the COMMIT and before it reads the answer.
func CommitTx(ctx context.Context, conn *pgxpool.Conn, sent func()) error {
	answer := conn.Conn().PgConn().Exec(ctx, "commit")
	sent()
	results, err := answer.ReadAll()
	if err != nil {
		return err
	}
	return committed(results[0].CommandTag)
}

// Commit runs the queued statements and commits the transaction that conn has open, in one round
// trip. It calls sent after it has sent them and before it reads the answer.
func (p *Pipeline) Commit(ctx context.Context, conn *pgxpool.Conn, sent func()) error {
	p.batch.Queue("commit").Exec(committed)
	results := conn.SendBatch(ctx, &p.batch)
	sent()
	return results.Close()
}

// RollBack undoes the open transaction. The pool closes a connection on which that
// fails.
func RollBack(ctx context.Context, conn *pgxpool.Conn) {
	const idle = 'I'
	if conn.Conn().PgConn().TxStatus() != idle {
		_, _ = conn.Exec(ctx, "rollback")
	}
}

// Undone reports whether a server's error shows that its transaction was undone because of one of its
// statements. Other errors may concern the connection or the server.
func Undone(err error) bool {
	for _, condition := range conditions {
		if errors.Is(err, condition) {
			return true
		}
	}
	server, ok := errors.AsType[*serverError](err)
	if !ok {
		return false
	}
	switch server.code[:2] {
	case "08", "53", "57", "58", "25": // see Uncertain
		return false
	}
	return true
}
