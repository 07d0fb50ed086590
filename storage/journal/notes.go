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

// A Note describes a note, without its text.
type Note struct {
	Name      string
	Chars     int
	UpdatedAt time.Time
	Labels    []policy.Mark
}

// WriteNote stores a note with its labels, in the transaction of the transactional tool if ctx carries one. Its owner
// is an agent's user, without a user a conversation, or with neither the agent itself.
func (s *Store) WriteNote(ctx context.Context, owner turnkeeper.ConversationKey, name, text string,
	labels []policy.Mark) error {
	p := dbsqlc.WriteNoteParams{
		Agent: owner.Agent, UserName: owner.User, Conversation: owner.Name, Name: s.db.Clean(name),
		Content: s.db.Clean(text),
		Labels:  []string{}, Sources: []string{},
	}
	for _, m := range policy.Join(labels) {
		p.Labels, p.Sources = append(p.Labels, string(m.Label)), append(p.Sources, s.db.Clean(m.Source))
	}
	return pg.Translate(s.db.QueriesIn(ctx).WriteNote(ctx, p))
}

// ReadNote reads a note of an owner, with its labels.
func (s *Store) ReadNote(ctx context.Context, owner turnkeeper.ConversationKey, name string) (
	text string, labels []policy.Mark, found bool, err error,
) {
	row, err := s.db.QueriesIn(ctx).ReadNote(ctx, owner.Agent, owner.User, owner.Name, s.db.Clean(name))
	if err = pg.Translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return "", nil, false, nil
	}
	return row.Content, marks(row.Labels, row.Sources), err == nil, err
}

// ListNotes lists an owner's notes by name, at most 500.
func (s *Store) ListNotes(ctx context.Context, owner turnkeeper.ConversationKey) ([]Note, error) {
	rows, err := s.db.QueriesIn(ctx).ListNotes(ctx, owner.Agent, owner.User, owner.Name)
	notes := make([]Note, len(rows))
	for i, r := range rows {
		notes[i] = Note{Name: r.Name, Chars: int(r.Chars), UpdatedAt: r.UpdatedAt, Labels: marks(r.Labels, r.Sources)}
	}
	return notes, pg.Translate(err)
}
