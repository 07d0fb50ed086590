package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/storage/internal/dbsqlc"
)

// A Pipeline collects statements and sends them in one round trip, as one
// transaction: Postgres runs everything up to the protocol's Sync as one. It
// stands in for a connection of the generated code; only statements without
// rows may go through it.
type Pipeline struct {
	batch pgx.Batch
}

type batchSender interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

// Queries returns the statements that are to be queued.
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

// Send runs what was queued. Nothing of it is done unless all of it is. sent is
// called between the last byte and the first of the answer.
func (p *Pipeline) Send(ctx context.Context, to batchSender, sent func()) error {
	results := to.SendBatch(ctx, &p.batch)
	sent()
	return Translate(results.Close()) // the first error of any statement
}

var errUndone = errors.New("the transaction was undone: one of its statements had failed")

// committed says what the answer to a commit means: a transaction in which a
// statement had failed answers too.
func committed(answer pgconn.CommandTag) error {
	if answer.String() != "COMMIT" {
		return errUndone
	}
	return nil
}

// CommitTx ends a transaction. sent is called between the last byte and the first
// of the answer.
func CommitTx(ctx context.Context, conn *pgxpool.Conn, sent func()) error {
	answer := conn.Conn().PgConn().Exec(ctx, "commit")
	sent()
	results, err := answer.ReadAll()
	if err != nil {
		return err
	}
	return committed(results[0].CommandTag)
}

// Commit ends the transaction that conn has open, with what was queued in the same round trip. sent
// is called between the last byte and the first of the answer.
func (p *Pipeline) Commit(ctx context.Context, conn *pgxpool.Conn, sent func()) error {
	p.batch.Queue("commit").Exec(committed)
	results := conn.SendBatch(ctx, &p.batch)
	sent()
	return results.Close()
}

// RollBack undoes what an open transaction did. A connection that cannot is
// closed by its pool.
func RollBack(ctx context.Context, conn *pgxpool.Conn) {
	const idle = 'I'
	if conn.Conn().PgConn().TxStatus() != idle {
		_, _ = conn.Exec(ctx, "rollback")
	}
}
