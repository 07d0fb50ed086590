package storage

import (
	"context"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/internal/pg"
)

// TxFrom returns the transaction in which a transactional tool runs. What the tool
// writes there is committed together with the record of its result, or not at all. The
// tool must neither commit nor roll it back. ok is false outside of such a tool.
func TxFrom(ctx context.Context) (tx pgx.Tx, ok bool) { return pg.TxFrom(ctx) }
