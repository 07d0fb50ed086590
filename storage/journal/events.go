package journal

import (
	"context"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// storedEvents are events as the columns of the table journal.
type storedEvents struct {
	types, data    []string
	rounds, blocks []int32
}

func (s *Store) stored(events []turnkeeper.Event) storedEvents {
	e := storedEvents{types: []string{}, data: []string{}, rounds: []int32{}, blocks: []int32{}}
	for _, event := range events {
		e.types = append(e.types, string(event.Type))
		e.rounds = append(e.rounds, int32(event.Round)) //nolint:gosec // at most 20
		e.blocks = append(e.blocks, int32(event.Block)) //nolint:gosec // few
		e.data = append(e.data, s.db.Clean(string(event.Data)))
	}
	return e
}

// AddEvents adds events to the stream of a turn whose row the caller's transaction has locked.
func (s *Store) AddEvents(ctx context.Context, q *dbsqlc.Queries, turn turnkeeper.TurnID,
	events []turnkeeper.Event) error {
	e := s.stored(events)
	return q.AddEvents(ctx, dbsqlc.AddEventsParams{Turn: int64(turn), Types: e.types, Rounds: e.rounds,
		Blocks: e.blocks, Data: e.data})
}
