package dbrow

import (
	"context"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// ReadOutput returns the characters from..to of an output of the turn.
func ReadOutput(ctx context.Context, q *dbsqlc.Queries, turn turnkeeper.TurnID, id turnkeeper.OutputID, from,
	to int64) (string, error) {
	from = min(max(from, 0), turnkeeper.MaxOutputBytes)
	take := min(max(to-from, 0), turnkeeper.MaxOutputBytes)
	text, err := q.ReadOutput(ctx, from, int32(take), string(id), int64(turn))
	return text, pg.Translate(err)
}
