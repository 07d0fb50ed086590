package dbrow

import (
	"context"
	"errors"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Lineage reads which call spawned the turn of a message. It returns the zero value if
// none did.
func Lineage(ctx context.Context, q *dbsqlc.Queries, message turnkeeper.MessageID) (turnlog.Lineage, error) {
	id := int64(message)
	r, err := q.LineageOf(ctx, &id)
	if err = pg.Translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return turnlog.Lineage{}, nil
	}
	return turnlog.Lineage{
		Root: turnkeeper.TurnID(r.Root), Parent: turnkeeper.TurnID(r.Parent), Agents: r.Agents,
		Call: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)},
		Limits: turnlog.TreeLimits{MaxDepth: int(r.MaxDepth), MaxAgents: int(r.MaxAgents), Tokens: r.Tokens,
			Calls: r.Calls},
	}, err
}
