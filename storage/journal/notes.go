package journal

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A Note describes an agent's note, without its text.
type Note struct {
	Name      string
	Chars     int
	UpdatedAt time.Time
	Labels    []policy.Mark
}

// WriteNote stores a note of an agent with its labels, in the transaction of the transactional tool if
// ctx carries one.
func (s *Store) WriteNote(ctx context.Context, agent, name, text string, labels []policy.Mark) error {
	p := dbsqlc.WriteNoteParams{Agent: agent, Name: s.db.Clean(name), Content: s.db.Clean(text), Labels: []string{}, Sources: []string{}}
	for _, m := range policy.Join(labels) {
		p.Labels, p.Sources = append(p.Labels, string(m.Label)), append(p.Sources, s.db.Clean(m.Source))
	}
	return pg.Translate(s.db.QueriesIn(ctx).WriteNote(ctx, p))
}

// ReadNote reads a note of an agent, with its labels.
func (s *Store) ReadNote(ctx context.Context, agent, name string) (text string, labels []policy.Mark, found bool, err error) {
	row, err := s.db.QueriesIn(ctx).ReadNote(ctx, agent, s.db.Clean(name))
	if err = pg.Translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return "", nil, false, nil
	}
	return row.Content, marks(row.Labels, row.Sources), err == nil, err
}

// ListNotes lists an agent's notes by name, at most 500.
func (s *Store) ListNotes(ctx context.Context, agent string) ([]Note, error) {
	rows, err := s.db.QueriesIn(ctx).ListNotes(ctx, agent)
	notes := make([]Note, len(rows))
	for i, r := range rows {
		notes[i] = Note{Name: r.Name, Chars: int(r.Chars), UpdatedAt: r.UpdatedAt, Labels: marks(r.Labels, r.Sources)}
	}
	return notes, pg.Translate(err)
}
