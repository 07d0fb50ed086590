package storage

import (
	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// storedEvents are events as the statements take them: a column each.
type storedEvents struct {
	first, last    int64 // numbers
	types, data    []string
	rounds, blocks []int32
}

// noEvents makes an empty series of numbers.
var noEvents = storedEvents{first: 1, last: 0}

// eventsOf numbers events on from lastSeq.
func (s *Store) eventsOf(lastSeq int64, events []turnkeeper.Event) storedEvents {
	stored := storedEvents{first: lastSeq + 1, last: lastSeq + int64(len(events))}
	for _, e := range events {
		stored.types = append(stored.types, string(e.Type))
		stored.rounds = append(stored.rounds, int32(e.Round)) //nolint:gosec // at most 20
		stored.blocks = append(stored.blocks, int32(e.Block)) //nolint:gosec // few
		stored.data = append(stored.data, s.clean(string(e.Data)))
	}
	return stored
}

func (e storedEvents) params(turn turnkeeper.TurnID) dbsqlc.InsertEventsParams {
	return dbsqlc.InsertEventsParams{
		TurnID: int64(turn), FirstSeq: e.first, LastSeq: e.last, Types: e.types, Rounds: e.rounds, Blocks: e.blocks, Data: e.data,
	}
}
