package storage

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// send runs what was queued. Nothing of it is done unless all of it is.
func (p *pipeline) send(ctx context.Context, to batchSender) error {
	results := to.SendBatch(ctx, &p.batch)
	for range p.batch.Len() {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // says the same again
			return translate(err)
		}
	}
	return translate(results.Close())
}
