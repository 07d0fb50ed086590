package operate

import (
	"context"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/pg"
)

// wholeOutput reads the content of a chunked output.
func (s *Views) wholeOutput(ctx context.Context, o *turnkeeper.Output) error {
	rows, err := s.db.Q.ChunksOfOutput(ctx, string(o.ID))
	if err != nil {
		return pg.Translate(err)
	}
	content := make([]byte, 0, o.SizeBytes)
	for _, row := range rows {
		content = append(append(content, dbrow.OrZero(row.Content)...), row.Bytes...)
	}
	if o.Bytes != nil {
		o.Bytes = content
	} else {
		o.Text = string(content)
	}
	return nil
}

// Output reads a stored tool result with all its content, or fails with
// ErrNotFound.
func (s *Views) Output(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error) {
	o, chunked, err := s.outputRow(ctx, id)
	if err == nil && chunked {
		err = s.wholeOutput(ctx, &o)
	}
	return o, err
}

// FindOutput is like Output, but does not read the content of a chunked output: Text is
// empty then, and Bytes is empty for binary content and nil for text.
func (s *Views) FindOutput(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error) {
	o, _, err := s.outputRow(ctx, id)
	return o, err
}

func (s *Views) outputRow(ctx context.Context, id turnkeeper.OutputID) (o turnkeeper.Output, chunked bool, err error) {
	r, err := s.db.Q.OutputByID(ctx, string(id))
	o = turnkeeper.Output{
		ID: turnkeeper.OutputID(r.ID), TurnID: turnkeeper.TurnID(r.TurnID),
		Call:      turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)},
		MediaType: r.MediaType, Text: dbrow.OrZero(r.Content), Bytes: r.Bytes, SizeBytes: r.SizeBytes,
		RawBytes: r.RawBytes,
		Chars:    r.Chars, Tokens: r.Tokens, SHA256: r.Sha256, Incomplete: r.Incomplete, Description: r.Description,
		Retrieved: r.Retrieved, CreatedAt: r.CreatedAt, ExpiredAt: dbrow.OrZero(r.ExpiredAt),
	}
	return o, r.Chunked, pg.Translate(err)
}

// ReadOutput returns the characters from..to of an output of the turn; for binary content, those of its
// description. Of a large output it reads only the chunks that contain them. It fails with ErrNotFound
// if the turn has no such output.
func (s *Views) ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from,
	to int64) (string, error) {
	return dbrow.ReadOutput(ctx, s.db.Q, turn, id, from, to)
}
