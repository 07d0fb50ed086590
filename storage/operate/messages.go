package operate

import (
	"context"

	"turnkeeper"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Message reads one message of the inbox, without its waits, or fails with ErrNotFound.
func (s *Views) Message(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error) {
	row, err := s.db.Q.MessageByID(ctx, int64(id))
	if err != nil {
		return waiting.Message{}, pg.Translate(err)
	}
	return closedBy(dbrow.Message(row.TurnkeeperMessage), row.TurnState), nil
}

// closedBy sets the outcome of a closed message from the state of its newest turn.
func closedBy(row turnkeeper.Message, turn string) waiting.Message {
	m := waiting.Message{Message: row}
	if !m.ClosedAt.IsZero() {
		m.Outcome = turnkeeper.TurnState(turn)
	}
	return m
}

// A Page selects rows of a list.
type Page struct {
	Agent string // empty: all
	User  string // empty: all
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

// Messages lists the inbox, newest first, with what its open messages wait for.
func (s *Views) Messages(ctx context.Context, p Page) ([]waiting.Message, error) {
	rows, err := s.db.Q.ListMessages(ctx, dbsqlc.ListMessagesParams{
		Agent: p.Agent, UserName: p.User, State: p.State, Before: p.Cursor, MaxRows: p.limit(),
	})
	if err != nil {
		return nil, pg.Translate(err)
	}
	messages := dbrow.Map(rows, func(r dbsqlc.ListMessagesRow) waiting.Message {
		return closedBy(dbrow.Message(r.TurnkeeperMessage), r.TurnState)
	})
	return messages, s.withWaits(ctx, messages)
}

// Replies lists the outbox by ascending id, after the cursor. Continuing from the last
// id misses no reply: Replies waits at most two seconds for uncommitted replies with a
// lower id, and then returns only the replies before the first missing id.
func (s *Views) Replies(ctx context.Context, p Page) ([]turnkeeper.Reply, error) {
	rows, err := s.db.Q.ListReplies(ctx, dbsqlc.ListRepliesParams{
		After: p.Cursor, MaxRows: p.limit(), Agent: p.Agent, UserName: p.User, TopOnly: p.TopOnly,
	})
	return dbrow.Map(rows, func(r dbsqlc.ListRepliesRow) turnkeeper.Reply {
		return dbrow.Reply(dbsqlc.TurnkeeperReply{
			ID: r.ID, MessageID: r.MessageID, TurnID: r.TurnID, Agent: r.Agent, UserName: r.UserName,
			Conversation: r.Conversation, Outcome: r.Outcome,
			Body: r.Body, CreatedAt: r.CreatedAt, ParentTurnID: dbrow.OrNullNumber(r.ParentTurnID),
			StopReason: r.StopReason, ErrorClass: dbrow.OrNull(r.ErrorClass), Calls: r.Calls, Labels: r.Labels,
		})
	}), pg.Translate(err)
}

// LatestReplies lists the outbox newest first, below the cursor.
func (s *Views) LatestReplies(ctx context.Context, p Page) ([]turnkeeper.Reply, error) {
	rows, err := s.db.Q.ListRepliesNewestFirst(ctx, dbsqlc.ListRepliesNewestFirstParams{
		Agent: p.Agent, UserName: p.User, Before: p.Cursor, TopOnly: p.TopOnly, MaxRows: p.limit(),
	})
	return dbrow.Map(rows, dbrow.Reply), pg.Translate(err)
}

// ReplyTo reads the reply to a message, or fails with ErrNotFound if there is none yet.
func (s *Views) ReplyTo(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Reply, error) {
	row, err := s.db.Q.ReplyOfMessage(ctx, int64(id))
	return dbrow.Reply(row), pg.Translate(err)
}
