package storage

import (
	"context"

	"turnkeeper"
)

// ReadOutput returns the characters of a stored output of the turn from one
// position up to another; of binary content, those of its description. Of a large
// output no more is read than the chunks that hold them. An output that is not of
// this turn is ErrNotFound.
func (s *Store) ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from, to int64) (string, error) {
	from = min(max(from, 0), turnkeeper.MaxOutputBytes)
	take := min(max(to-from, 0), turnkeeper.MaxOutputBytes)
	text, err := s.q.ReadOutput(ctx, from, int32(take), string(id), int64(turn))
	return text, translate(err)
}

// DescribeOutput is an output of the turn without its content.
func (s *Store) DescribeOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) (turnkeeper.Output, error) {
	row, err := s.q.DescribeOutput(ctx, string(id), int64(turn))
	return turnkeeper.Output{
		ID: id, TurnID: turn, MediaType: row.MediaType, SizeBytes: row.SizeBytes, RawBytes: row.RawBytes, Chars: row.Chars,
		Tokens: row.Tokens, SHA256: row.Sha256, Incomplete: row.Incomplete, Description: row.Description,
		Retrieved: row.Retrieved, CreatedAt: row.CreatedAt,
	}, translate(err)
}

// NoteRetrieved counts that something of an output was read.
func (s *Store) NoteRetrieved(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID) error {
	return translate(s.q.NoteRetrieved(ctx, string(id), int64(turn)))
}
