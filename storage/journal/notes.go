package journal

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/pg"
)

// A Note describes an agent's note, without its text.
type Note struct {
	Name      string
	Chars     int
	UpdatedAt time.Time
}

// WriteNote stores a note of an agent, in the transaction of the transactional tool if
// ctx carries one.
func (s *Store) WriteNote(ctx context.Context, agent, name, text string) error {
	return pg.Translate(s.db.QueriesIn(ctx).WriteNote(ctx, agent, s.db.Clean(name), s.db.Clean(text)))
}

// ReadNote reads a note of an agent.
func (s *Store) ReadNote(ctx context.Context, agent, name string) (text string, found bool, err error) {
	text, err = s.db.QueriesIn(ctx).ReadNote(ctx, agent, s.db.Clean(name))
	if err = pg.Translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return "", false, nil
	}
	return text, err == nil, err
}

// ListNotes lists an agent's notes by name, at most 500.
func (s *Store) ListNotes(ctx context.Context, agent string) ([]Note, error) {
	rows, err := s.db.QueriesIn(ctx).ListNotes(ctx, agent)
	notes := make([]Note, len(rows))
	for i, r := range rows {
		notes[i] = Note{Name: r.Name, Chars: int(r.Chars), UpdatedAt: r.UpdatedAt}
	}
	return notes, pg.Translate(err)
}
