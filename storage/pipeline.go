package storage

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/storage/internal/dbsqlc"
)

// A pipeline collects statements and sends them in one round trip, as one
// transaction: Postgres runs everything up to the protocol's Sync as one. It
// stands in for a connection of the generated code; only statements without
// rows may go through it.
type pipeline struct {
	batch pgx.Batch
}

type batchSender interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

func (p *pipeline) queries() *dbsqlc.Queries { return dbsqlc.New(p) }

// Exec queues the statement. It never fails: errors come from send.
func (p *pipeline) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	p.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

var errPipelineRows = errors.New("a pipeline sends only statements without rows")

func (p *pipeline) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errPipelineRows
}

func (p *pipeline) QueryRow(context.Context, string, ...any) pgx.Row { return noRow{} }

type noRow struct{}

func (noRow) Scan(...any) error { return errPipelineRows }

// send runs what was queued. Nothing of it is done unless all of it is. sent is
// called between the last byte and the first of the answer.
func (p *pipeline) send(ctx context.Context, to batchSender, sent func()) error {
	results := to.SendBatch(ctx, &p.batch)
	sent()
	return translate(results.Close()) // the first error of any statement
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

// commitTx ends a transaction. sent is called between the last byte and the first
// of the answer.
func commitTx(ctx context.Context, conn *pgxpool.Conn, sent func()) error {
	answer := conn.Conn().PgConn().Exec(ctx, "commit")
	sent()
	results, err := answer.ReadAll()
	if err != nil {
		return err
	}
	return committed(results[0].CommandTag)
}

// commitWith is commitTx with the last statements of the transaction in the same
// round trip.
func commitWith(ctx context.Context, conn *pgxpool.Conn, last *pgx.Batch, sent func()) error {
	last.Queue("commit").Exec(committed)
	results := conn.SendBatch(ctx, last)
	sent()
	return results.Close()
}

// rollBack undoes what an open transaction did. A connection that cannot is
// closed by its pool.
func rollBack(ctx context.Context, conn *pgxpool.Conn) {
	const idle = 'I'
	if conn.Conn().PgConn().TxStatus() != idle {
		_, _ = conn.Exec(ctx, "rollback")
	}
}
