package journal

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// RecentCalls lists the calls of an agent with this name and arguments hash that ended
// within the window, newest first, at most 20.
func (s *Store) RecentCalls(ctx context.Context, agent, name, argsHash string,
	within time.Duration) ([]turnlog.PastCall, error) {
	rows, err := s.db.Q.RecentCalls(ctx, agent, name, argsHash, within)
	return dbrow.Map(rows, func(r dbsqlc.RecentCallsRow) turnlog.PastCall {
		return turnlog.PastCall{Succeeded: r.State == string(turnkeeper.CallSucceeded),
			Ago: max(dbrow.Micros(r.AgoUs), 0)}
	}), pg.Translate(err)
}

// ReadOutput returns the characters from..to of an output of the turn; for binary
// content, those of its description. Of a large output it reads only the chunks that
// contain them. It fails with ErrNotFound if the turn has no such output.
func (s *Store) ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from,
	to int64) (string, error) {
	return dbrow.ReadOutput(ctx, s.db.Q, turn, id, from, to)
}

// DescribeOutput returns an output of the turn without its content.
func (s *Store) DescribeOutput(ctx context.Context, turn turnkeeper.TurnID,
	id turnkeeper.OutputID) (turnkeeper.Output, error) {
	row, err := s.db.Q.DescribeOutput(ctx, string(id), int64(turn))
	return turnkeeper.Output{
		ID: id, TurnID: turn, MediaType: row.MediaType, SizeBytes: row.SizeBytes, RawBytes: row.RawBytes,
		Chars:  row.Chars,
		Tokens: row.Tokens, SHA256: row.Sha256, Incomplete: row.Incomplete, Description: row.Description,
		Retrieved: row.Retrieved, CreatedAt: row.CreatedAt, ExpiredAt: dbrow.OrZero(row.ExpiredAt),
	}, pg.Translate(err)
}

// NoteRetrieved increments the retrieval count of an output.
func (s *Store) NoteRetrieved(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) error {
	return pg.Translate(s.db.Q.NoteRetrieved(ctx, string(id), int64(turn)))
}
