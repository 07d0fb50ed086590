package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Enqueue writes a message to the inbox and rings the doorbell, in one transaction. A
// repeat with the same key returns the first id; with another body or conversation it
// fails with turnkeeper.ErrKeyConflict. Other refusals match ErrEmptyMessage,
// ErrInvalidMessage, ErrUnknownAgent or ErrAgentRetired; they write nothing. Secrets
// that this process knows are masked in the body; in the names of the user and the conversation or in the
// key they are refused.
func (s *DB) Enqueue(ctx context.Context, m turnkeeper.Submission) (turnkeeper.MessageID, error) {
	id, _, err := s.Accept(ctx, m)
	return id, err
}

// Accept is like Enqueue, and reports whether a message with this key was accepted
// before.
func (s *DB) Accept(ctx context.Context, m turnkeeper.Submission) (_ turnkeeper.MessageID, repeated bool, _ error) {
	return s.AcceptFrom(ctx, Sender{Operates: true}, m)
}

// A Sender is who sends a message.
type Sender struct {
	Token int64 // id of its token of the HTTP API; 0: none, and the role of the database's session is recorded
	// it may operate, and so use priorities above max_sender_priority; without a token it may if the role may
	Operates bool
}

// AcceptFrom is Accept for a message of this sender, which it records.
func (s *DB) AcceptFrom(ctx context.Context, from Sender,
	m turnkeeper.Submission) (_ turnkeeper.MessageID, repeated bool, _ error) {
	if err := s.CheckSubmission(m); err != nil {
		return 0, false, err
	}
	var id int64
	written := true
	batch := &pgx.Batch{}
	statement, args := dbsqlc.Enqueue, []any{
		m.Agent, s.core.Masked(m.Body), m.Conversation, dbrow.OrNull(m.Key), m.Priority,
		dbrow.OrNull(pg.Storable(m.TraceParent)), dbrow.OrNullTime(m.DueAt), m.User,
	}
	if from.Token != 0 {
		statement, args = dbsqlc.EnqueueBy, append([]any{from.Token, from.Operates, m.Agent, m.User},
			args[1:len(args)-1]...)
	}
	batch.Queue(statement, args...).
		QueryRow(func(row pgx.Row) error { return row.Scan(&id) })
	if m.Key != "" {
		batch.Queue(dbsqlc.WrittenHere, m.Agent, m.User, m.Key).QueryRow(func(row pgx.Row) error {
			return row.Scan(&written)
		})
	}
	s.core.At(ctx, PointAcceptBefore)
	results := s.core.Pool.SendBatch(ctx, batch)
	s.core.At(ctx, PointAcceptSent)
	err := results.Close()
	s.core.At(ctx, PointAcceptAfter)
	return turnkeeper.MessageID(id), !written, pg.Translate(err)
}

// CheckSubmission refuses what Postgres would refuse, with a clearer error, and names that contain a
// secret. Names are not masked, because a masked name would not be found again. The limit on the
// body is a setting in the database, which the database checks.
func (s *DB) CheckSubmission(m turnkeeper.Submission) error {
	if err := m.Check(turnkeeper.LargestMessage); err != nil {
		return err
	}
	for _, name := range []struct{ what, text string }{{"user's name", m.User}, {"conversation's name", m.Conversation},
		{"idempotency key", m.Key}} {
		if s.core.Masked(name.text) != name.text {
			return fmt.Errorf(
				"%w: the %s has a secret in it, or what looks like one; names are stored and shown as they are, so choose another",
				turnkeeper.ErrInvalidMessage, name.what)
		}
	}
	return nil
}

// Now returns the time of the database's clock, which decides when messages are due.
func (s *DB) Now(ctx context.Context) (time.Time, error) {
	now, err := s.core.Q.Now(ctx)
	return now, pg.Translate(err)
}
