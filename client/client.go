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
	"turnkeeper/asks"
)

// A DB runs statements: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// largest is the limit, in bytes, that the client checks. The database checks the configured limit on messages.
const largest = 1 << 29

// Enqueue puts a message into its agent's inbox and returns its id. In a transaction, the message
// exists once the transaction commits. An error from the database aborts the transaction, like any failed
// statement.
//
// With a Key, a repeat of the same message returns the id of the first, so it is safe to retry after an error. A key
// counts for an agent and a user: another body or conversation with the same one is ErrKeyConflict.
func Enqueue(ctx context.Context, db DB, m turnkeeper.Submission) (turnkeeper.MessageID, error) {
	if err := m.Check(largest); err != nil {
		return 0, err
	}
	var due *time.Time
	if !m.DueAt.IsZero() {
		due = &m.DueAt
	}
	var id turnkeeper.MessageID
	err := db.QueryRow(ctx,
		`select turnkeeper.enqueue($1::text, $2::text, $3::text, $4::text, $5::integer, $6::text, $7::timestamptz, $8::text)`,
		m.Agent, m.Body, m.Conversation, orNull(m.Key), m.Priority, orNull(m.TraceParent), due, m.User).Scan(&id)
	return id, plain(err)
}

// Edit changes the body of a message that the session's role has sent, while it waits for its first turn. It keeps its
// place, and a repeat with its Key is still compared with the first body. Another role's message is
// turnkeeper.ErrNotFound, one that has had a turn turnkeeper.ErrWrongState. The message's lane waits until the
// transaction ends.
func Edit(ctx context.Context, db DB, id turnkeeper.MessageID, body string) error {
	return run(ctx, db, `select turnkeeper.edit_message($1::bigint, $2::text)`, id, body)
}

// Drop drops a message that the session's role has sent, while it waits: no turn of it starts, and the scheduler's next
// tick after the transaction closes it as cancelled, with a reply. The errors are those of Edit.
func Drop(ctx context.Context, db DB, id turnkeeper.MessageID) error {
	return run(ctx, db, `select turnkeeper.drop_message($1::bigint)`, id)
}

func run(ctx context.Context, db DB, sql string, args ...any) error {
	rows, err := db.Query(ctx, sql, args...)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	return plain(err)
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// A Filter selects replies to messages of the session's role. The zero value selects all.
type Filter struct {
	Agent string // empty: all
	User  string // whose conversation it is; empty: all
}

// maxReplies is the maximum limit of Replies.
const maxReplies = 1000

// Replies returns the replies to messages of the session's role with ids above after, ordered by id, at most limit (1
// to 1000). A caller that continues after the last one misses none: if a reply with a lower id is still being
// committed, Replies waits for it, at most two seconds, and then omits the replies after it. So db must not be a
// transaction with an isolation level above read committed.
func Replies(ctx context.Context, db DB, after turnkeeper.ReplyID, limit int, f Filter) ([]turnkeeper.Reply, error) {
	if limit < 1 || limit > maxReplies {
		return nil, fmt.Errorf("limit is %d: it must be 1 to %d", limit, maxReplies)
	}
	rows, err := db.Query(ctx, `select `+replyColumns+
		` from turnkeeper.my_replies_after($1::bigint, $2::integer, $3::text, $4::text) r`,
		after, limit, f.Agent, f.User)
	if err != nil {
		return nil, plain(err)
	}
	replies, err := pgx.CollectRows(rows, scanReply)
	return replies, plain(err)
}

const replyColumns = `r.id, r.message_id, r.turn_id, r.agent, r.user_name, r.conversation, r.outcome, r.body, r.created_at,
	coalesce(r.parent_turn_id, 0), r.stop_reason, coalesce(r.error_class, ''), r.calls, r.labels`

func scanReply(row pgx.CollectableRow) (r turnkeeper.Reply, err error) {
	var calls []byte
	err = row.Scan(&r.ID, &r.MessageID, &r.TurnID, &r.Agent, &r.User, &r.Conversation, &r.Outcome,
		&r.Body, &r.CreatedAt,
		&r.ParentTurn, &r.StopReason, &r.ErrorClass, &calls, &r.Labels)
	if err != nil {
		return r, err
	}
	r.Calls, err = callsOf(calls)
	return r, err
}

// callsOf decodes the result of the database's function turnkeeper.reply_calls.
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
		return nil, fmt.Errorf("decode the calls of a reply: %w", err)
	}
	calls := make([]turnkeeper.ReplyCall, len(rows))
	for i, r := range rows {
		calls[i] = turnkeeper.ReplyCall{Ordinal: r.Ordinal, Name: r.Name, Effect: r.Effect, State: r.State,
			Duration: -1, Problem: r.Error}
		_, _ = fmt.Sscanf(r.ID, "round-%d-tool-%d", &calls[i].Key.Round, &calls[i].Key.Ordinal)
		if r.Duration != nil {
			calls[i].Duration = time.Duration(*r.Duration) * time.Millisecond
		}
	}
	return calls, nil
}

// conditions maps the SQLSTATEs that the database's functions raise to errors.
var conditions = map[string]error{
	"TK003": turnkeeper.ErrEmptyMessage,
	"TK004": turnkeeper.ErrInvalidMessage,
	"TK005": turnkeeper.ErrUnknownAgent,
	"TK006": turnkeeper.ErrKeyConflict,
	"TK008": turnkeeper.ErrWrongState,
	"TK010": turnkeeper.ErrAgentRetired,
	"TK012": asks.ErrClosed,
	"TK013": turnkeeper.ErrNotFound,
	"TK014": asks.ErrInvalid,
}

// A conditionError has the message of the database's error and matches the condition.
type conditionError struct {
	condition error
	server    *pgconn.PgError
}

func (e *conditionError) Error() string { return e.server.Message }
func (e *conditionError) Unwrap() error { return e.condition }

// plain converts an error of the database to a conditionError if its code is known. It drops the details,
// which may quote rows.
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
