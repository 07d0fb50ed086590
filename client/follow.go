package client

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"turnkeeper"
)

// ErrNoReply says that a message was closed and has no reply: a schedule's message whose turn
// had nothing to say, or one whose reply was purged.
var ErrNoReply = errors.New("the message was closed without a reply")

// Wait waits for the reply to a message, and returns it. The message may have failed or have been
// cancelled: the reply's Outcome says so. An unknown message is ErrNotFound. The message must be
// committed, so call it after the transaction that sent it.
//
// It waits until ctx ends, and then returns the cause. A database that goes away meanwhile is waited for,
// half a minute at most. While it waits it holds one connection of the pool.
func Wait(ctx context.Context, pool *pgxpool.Pool, id turnkeeper.MessageID) (reply turnkeeper.Reply, err error) {
	err = follow(ctx, pool, func(ctx context.Context, db DB) (bool, error) {
		var closed bool
		err := db.QueryRow(ctx, `select closed_at is not null from turnkeeper.messages where id = $1`, id).Scan(&closed)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, turnkeeper.ErrNotFound
		}
		if err != nil || !closed {
			return false, err
		}
		rows, err := db.Query(ctx, `select `+replyColumns+` from turnkeeper.replies r where r.message_id = $1`, id)
		if err != nil {
			return false, err
		}
		reply, err = pgx.CollectExactlyOneRow(rows, scanReply)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, ErrNoReply
		}
		return err == nil, err
	})
	return reply, err
}

// Outbox gives the replies after an id, in the order of their ids, and waits for more, until ctx ends
// or the loop is left. Each is given once. To miss none and handle none twice over restarts,
// store the id of each reply in the transaction that handles it, and begin after it; 0 begins
// at the first.
//
// The last that it gives is an error: the cause of ctx's end, or what keeps the database from
// answering. A database that goes away is waited for, half a minute at most. It holds one
// connection of the pool, also while the loop's body runs: who uses the pool there needs a
// second one.
func Outbox(ctx context.Context, pool *pgxpool.Pool, after turnkeeper.ReplyID, f Filter) iter.Seq2[turnkeeper.Reply, error] {
	return func(yield func(turnkeeper.Reply, error) bool) {
		err := follow(ctx, pool, func(ctx context.Context, db DB) (bool, error) {
			for {
				page, err := Replies(ctx, db, after, pageSize, f)
				if err != nil {
					return false, err
				}
				for _, reply := range page {
					after = reply.ID
					if !yield(reply, nil) {
						return true, nil
					}
				}
				if len(page) < pageSize {
					return false, nil
				}
			}
		})
		if err != nil {
			yield(turnkeeper.Reply{}, err)
		}
	}
}

const pageSize = 100

// The doorbell says "look again" and may be lost, so there is a poll beside it. Tests change it.
var poll = 2 * time.Second

const (
	patience   = 30 * time.Second       // with a database that is away
	afterBreak = 500 * time.Millisecond // before it is asked again
	goodbye    = 5 * time.Second        // for the end of a subscription
)

// follow calls look at once, at each doorbell that rings for the end of a turn, and at each poll,
// until it is done or fails.
func follow(ctx context.Context, pool *pgxpool.Pool, look func(context.Context, DB) (done bool, err error)) error {
	answered := time.Now()
	for {
		err := listen(ctx, pool, func(ctx context.Context, db DB) (bool, error) {
			done, err := look(ctx, db)
			if err == nil {
				answered = time.Now()
			}
			return done, err
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !passes(err) || time.Since(answered) > patience:
			return plain(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(afterBreak):
		}
	}
}

// listen is follow over one connection.
func listen(ctx context.Context, pool *pgxpool.Pool, look func(context.Context, DB) (done bool, err error)) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "listen turnkeeper_turns"); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer cancel()
		if _, err := conn.Exec(ctx, "unlisten turnkeeper_turns"); err != nil {
			_ = conn.Conn().Close(ctx) // nobody else gets it with the subscription
		}
	}()
	for {
		done, err := look(ctx, conn)
		if err != nil || done {
			return err
		}
		if err := ring(ctx, conn.Conn()); err != nil {
			return err
		}
	}
}

// ring waits for the doorbell, or as long as a poll is.
func ring(ctx context.Context, conn *pgx.Conn) error {
	quiet, cancel := context.WithTimeout(ctx, poll)
	defer cancel()
	_, err := conn.WaitForNotification(quiet)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if quiet.Err() != nil && !conn.IsClosed() {
		return nil
	}
	return err
}

// passes says of an error that the database is away, or on its way to be, rather than that it refused.
func passes(err error) bool {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, class := range []string{"08", "53", "57P"} { // connection, resources, shutdown
			if strings.HasPrefix(server.Code, class) {
				return true
			}
		}
		return false
	}
	return !errors.Is(err, turnkeeper.ErrNotFound) && !errors.Is(err, ErrNoReply) && !errors.Is(err, puddle.ErrClosedPool)
}
