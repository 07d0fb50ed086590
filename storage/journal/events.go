package journal

import (
	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// StoredEvents are events as parameters of the statements, one list for each column.
type StoredEvents struct {
	first, last    int64 // numbers
	types, data    []string
	rounds, blocks []int32
}

// noEvents is an empty series of numbers.
var noEvents = StoredEvents{first: 1, last: 0}

// EventsOf numbers events from lastSeq+1.
func (s *Store) EventsOf(lastSeq int64, events []turnkeeper.Event) StoredEvents {
	stored := StoredEvents{first: lastSeq + 1, last: lastSeq + int64(len(events))}
	for _, e := range events {
		stored.types = append(stored.types, string(e.Type))
		stored.rounds = append(stored.rounds, int32(e.Round)) //nolint:gosec // at most 20
		stored.blocks = append(stored.blocks, int32(e.Block)) //nolint:gosec // few
		stored.data = append(stored.data, s.db.Clean(string(e.Data)))
	}
	return stored
}

// Params returns the parameters of the statement that inserts the events.
func (e StoredEvents) Params(turn turnkeeper.TurnID) dbsqlc.InsertEventsParams {
	return dbsqlc.InsertEventsParams{
		TurnID: int64(turn), FirstSeq: e.first, LastSeq: e.last, Types: e.types, Rounds: e.rounds, Blocks: e.blocks, Data: e.data,
	}
}
