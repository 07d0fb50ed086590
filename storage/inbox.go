package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// Enqueue accepts a message and rings the doorbell, in one transaction. A
// repeat with the same key returns the first id; with another body or
// conversation it fails with turnkeeper.ErrKeyConflict. Other refusals match
// ErrEmptyMessage, ErrInvalidMessage or ErrUnknownAgent; nothing is written
// then. A secret that this process knows is masked in the body: no model would be
// told it anyway. In the conversation's name or the key it is refused.
func (s *Store) Enqueue(ctx context.Context, m turnkeeper.Submission) (turnkeeper.MessageID, error) {
	id, _, err := s.Accept(ctx, m)
	return id, err
}

// Accept is Enqueue, and says whether the message with this key had been accepted
// before.
func (s *Store) Accept(ctx context.Context, m turnkeeper.Submission) (_ turnkeeper.MessageID, repeated bool, _ error) {
	// What Postgres would refuse in its own words is checked here in ours; the
	// limit on the body is in the database's settings.
	if err := m.Check(maxPostgresText); err != nil {
		return 0, false, err
	}
	if err := s.checkNames(m); err != nil {
		return 0, false, err
	}
	var id int64
	written := true
	batch := &pgx.Batch{}
	batch.Queue(dbsqlc.Enqueue, m.Agent, s.masked(m.Body), m.Conversation, orNull(m.Key), m.Priority, orNull(storable(m.TraceParent)), orNullTime(m.DueAt)).
		QueryRow(func(row pgx.Row) error { return row.Scan(&id) })
	if m.Key != "" {
		batch.Queue(dbsqlc.WrittenHere, m.Agent, m.Key).QueryRow(func(row pgx.Row) error { return row.Scan(&written) })
	}
	s.at(ctx, PointAcceptBefore)
	results := s.pool.SendBatch(ctx, batch)
	s.at(ctx, PointAcceptSent)
	err := results.Close()
	s.at(ctx, PointAcceptAfter)
	return turnkeeper.MessageID(id), !written, translate(err)
}

// checkNames refuses names that hold a secret. A body is masked; a name could not be found any more.
func (s *Store) checkNames(m turnkeeper.Submission) error {
	for _, name := range []struct{ what, text string }{{"conversation's name", m.Conversation}, {"idempotency key", m.Key}} {
		if s.masked(name.text) != name.text {
			return fmt.Errorf("%w: the %s has a secret in it, or what looks like one; names are kept and shown as they are, so choose another",
				turnkeeper.ErrInvalidMessage, name.what)
		}
	}
	return nil
}

// Now is the time by the database's clock, by which messages come due.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.q.Now(ctx)
	return now, translate(err)
}

// maxPostgresText is what one value may hold.
const maxPostgresText = 1 << 29

// Message reads one message of the inbox, or fails with ErrNotFound.
func (s *Store) Message(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Message, error) {
	row, err := s.q.MessageByID(ctx, int64(id))
	if err != nil {
		return turnkeeper.Message{}, translate(err)
	}
	found := []turnkeeper.Message{closedBy(messageOf(row.TurnkeeperMessage), row.TurnState)}
	err = s.withModels(ctx, found)
	return found[0], err
}

// closedBy adds to a closed message how its newest turn ended.
func closedBy(m turnkeeper.Message, turn string) turnkeeper.Message {
	if !m.ClosedAt.IsZero() {
		m.Outcome = turnkeeper.TurnState(turn)
	}
	return m
}

// A Page selects rows of a list.
type Page struct {
	Agent string // empty: all
	State string // empty: all
	Limit int    // 0: 25; at most 100
	// TopOnly leaves out replies of sub-agents. Lists of replies only.
	TopOnly bool
	// Cursor is an id: newest-first lists begin below it, oldest-first lists
	// after it. 0: at the start.
	Cursor int64
}

const (
	defaultLimit = 25
	maxLimit     = 100
)

func (p Page) limit() int32 {
	if p.Limit <= 0 {
		return defaultLimit
	}
	return int32(min(p.Limit, maxLimit))
}

// Messages lists the inbox, newest first, and what its open messages wait for.
func (s *Store) Messages(ctx context.Context, p Page) ([]turnkeeper.Message, error) {
	rows, err := s.q.ListMessages(ctx, p.Agent, p.State, p.Cursor, p.limit())
	if err != nil {
		return nil, translate(err)
	}
	messages := mapRows(rows, func(r dbsqlc.ListMessagesRow) turnkeeper.Message {
		return closedBy(messageOf(r.TurnkeeperMessage), r.TurnState)
	})
	return messages, s.withWaits(ctx, messages)
}

// Replies lists the outbox in the order of its ids, after the cursor. Who goes on from
// the last one misses none: where one with a lower id is still being committed, it is
// waited for, for two seconds at most, and what comes after it is left for then.
func (s *Store) Replies(ctx context.Context, p Page) ([]turnkeeper.Reply, error) {
	rows, err := s.q.ListReplies(ctx, p.Cursor, p.limit(), p.Agent, p.TopOnly)
	return mapRows(rows, func(r dbsqlc.ListRepliesRow) turnkeeper.Reply {
		return replyOf(dbsqlc.TurnkeeperReply{
			ID: r.ID, MessageID: r.MessageID, TurnID: r.TurnID, Agent: r.Agent, Conversation: r.Conversation, Outcome: r.Outcome,
			Body: r.Body, CreatedAt: r.CreatedAt, ParentTurnID: numberOrNull(r.ParentTurnID),
			StopReason: orNull(r.StopReason), ErrorClass: orNull(r.ErrorClass), Calls: r.Calls,
		})
	}), translate(err)
}

// LatestReplies lists the outbox newest first, below the cursor.
func (s *Store) LatestReplies(ctx context.Context, p Page) ([]turnkeeper.Reply, error) {
	rows, err := s.q.ListRepliesNewestFirst(ctx, p.Agent, p.Cursor, p.TopOnly, p.limit())
	return mapRows(rows, replyOf), translate(err)
}

// ReplyTo is the reply that a message ended with, or ErrNotFound while there is
// none.
func (s *Store) ReplyTo(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Reply, error) {
	row, err := s.q.ReplyOfMessage(ctx, int64(id))
	return replyOf(row), translate(err)
}
