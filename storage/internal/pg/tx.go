package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/internal/dbsqlc"
)

type txKey struct{}

// WithTx returns a context that carries the transaction of a tool.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// TxFrom returns the transaction in which a transactional tool runs. What the tool
// writes there is committed together with the record of its result, or not at all. The
// tool must neither commit nor roll it back. ok is false outside of such a tool.
func TxFrom(ctx context.Context) (tx pgx.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}

// QueriesIn returns queries that run in the transaction of ctx, if it has one.
func (s *DB) QueriesIn(ctx context.Context) *dbsqlc.Queries {
	if tx, ok := TxFrom(ctx); ok {
		return dbsqlc.New(tx)
	}
	return s.Q
}
