package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper"
)

// A DB runs statements: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// largest is as much as one value of Postgres may hold. The limit on a message is in the
// database's settings, and checked there.
const largest = 1 << 29

// Enqueue puts a message into its agent's inbox and returns its id. In a transaction, the message
// exists when that commits; after an error from the database the transaction has failed, as after any
// statement that fails.
//
// With a Key, a repeat of the same message returns the id of the first, so that sending again
// after a lost answer is safe; another body or conversation under the key is ErrKeyConflict.
func Enqueue(ctx context.Context, db DB, m turnkeeper.Submission) (turnkeeper.MessageID, error) {
	if err := m.Check(largest); err != nil {
		return 0, err
	}
	var due *time.Time
	if !m.DueAt.IsZero() {
		due = &m.DueAt
	}
	var id turnkeeper.MessageID
	err := db.QueryRow(ctx, `select turnkeeper.enqueue($1::text, $2::text, $3::text, $4::text, $5::integer, $6::text, $7::timestamptz)`,
		m.Agent, m.Body, m.Conversation, orNull(m.Key), m.Priority, orNull(m.TraceParent), due).Scan(&id)
	return id, plain(err)
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// A Filter picks replies. The zero value picks those of all agents that they wrote to
// messages from outside.
type Filter struct {
	Agent     string // empty: all
	SubAgents bool   // also what sub-agents wrote for the turns of other agents
}

// maxReplies is the largest page.
const maxReplies = 1000

// Replies reads the replies after an id, in the order of their ids, at most limit: 1 to 1000.
// Who goes on from the last one misses none: where one with a lower id is still being committed,
// it is waited for, two seconds at most, and what comes after it is left for later. So db
// must not be a transaction of an isolation level above read committed.
func Replies(ctx context.Context, db DB, after turnkeeper.ReplyID, limit int, f Filter) ([]turnkeeper.Reply, error) {
	if limit < 1 || limit > maxReplies {
		return nil, fmt.Errorf("the limit is %d: it must be 1 to %d", limit, maxReplies)
	}
	rows, err := db.Query(ctx, `select `+replyColumns+` from turnkeeper.replies_after($1::bigint, $2::integer, $3::text, $4::boolean) r`,
		after, limit, f.Agent, !f.SubAgents)
	if err != nil {
		return nil, plain(err)
	}
	replies, err := pgx.CollectRows(rows, scanReply)
	return replies, plain(err)
}

const replyColumns = `r.id, r.message_id, r.turn_id, r.agent, r.conversation, r.outcome, r.body, r.created_at,
	coalesce(r.parent_turn_id, 0), r.stop_reason, coalesce(r.error_class, ''), r.calls`

func scanReply(row pgx.CollectableRow) (r turnkeeper.Reply, err error) {
	var calls []byte
	err = row.Scan(&r.ID, &r.MessageID, &r.TurnID, &r.Agent, &r.Conversation, &r.Outcome, &r.Body, &r.CreatedAt,
		&r.ParentTurn, &r.StopReason, &r.ErrorClass, &calls)
	if err != nil {
		return r, err
	}
	r.Calls, err = callsOf(calls)
	return r, err
}

// callsOf reads what the function turnkeeper.reply_calls of the database wrote.
func callsOf(stored []byte) ([]turnkeeper.ReplyCall, error) {
	var rows []struct {
		Ordinal  int                  `json:"ordinal"`
		ID       string               `json:"id"`
		Name     string               `json:"name"`
		Effect   turnkeeper.Effect    `json:"effect"`
		State    turnkeeper.CallState `json:"state"`
		Duration *int64               `json:"duration_ms"`
		Error    string               `json:"error"`
	}
	if err := json.Unmarshal(stored, &rows); err != nil {
		return nil, fmt.Errorf("the calls of a reply: %w", err)
	}
	calls := make([]turnkeeper.ReplyCall, len(rows))
	for i, r := range rows {
		calls[i] = turnkeeper.ReplyCall{Ordinal: r.Ordinal, Name: r.Name, Effect: r.Effect, State: r.State, Duration: -1, Problem: r.Error}
		_, _ = fmt.Sscanf(r.ID, "round-%d-tool-%d", &calls[i].Key.Round, &calls[i].Key.Ordinal)
		if r.Duration != nil {
			calls[i].Duration = time.Duration(*r.Duration) * time.Millisecond
		}
	}
	return calls, nil
}

// conditions are the codes of the errors that the database's functions raise.
var conditions = map[string]error{
	"TK003": turnkeeper.ErrEmptyMessage,
	"TK004": turnkeeper.ErrInvalidMessage,
	"TK005": turnkeeper.ErrUnknownAgent,
	"TK006": turnkeeper.ErrKeyConflict,
	"TK010": turnkeeper.ErrAgentRetired,
}

// A conditionError has the database's own sentence and matches the condition.
type conditionError struct {
	condition error
	server    *pgconn.PgError
}

func (e *conditionError) Error() string { return e.server.Message }
func (e *conditionError) Unwrap() error { return e.condition }

// plain gives an error of the database the condition that callers branch on, and leaves out the
// details, which may quote rows.
func plain(err error) error {
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	if condition := conditions[server.Code]; condition != nil {
		return &conditionError{condition, server}
	}
	return err
}
