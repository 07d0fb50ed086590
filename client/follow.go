package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"turnkeeper"
)

// ErrNoReply is returned if a message was closed without a reply: a schedule's message whose turn wrote none,
// or a message whose reply was purged.
var ErrNoReply = errors.New("the message was closed without a reply")

// Wait waits for the reply to a message. The reply's Outcome tells whether the message failed or was cancelled. A
// message that is unknown, or that another role has sent, is ErrNotFound, so call Wait after the transaction that sent
// the message has committed.
//
// When ctx ends, Wait returns an error that matches the cause. It retries for at most half a minute while
// the database is unavailable; if ctx ends meanwhile, the error matches the last error of the database
// too. Wait holds one connection of the pool.
func Wait(ctx context.Context, pool *pgxpool.Pool, id turnkeeper.MessageID) (reply turnkeeper.Reply, err error) {
	err = follow(ctx, pool, func(ctx context.Context, db DB) (bool, error) {
		var closed bool
		var replyID *turnkeeper.ReplyID
		err := db.QueryRow(ctx, `select closed_at is not null, reply_id from turnkeeper.my_messages where id = $1`,
			id).Scan(&closed, &replyID)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, turnkeeper.ErrNotFound
		}
		if err != nil || !closed {
			return false, err
		}
		if replyID == nil {
			return false, ErrNoReply
		}
		found, err := Replies(ctx, db, *replyID-1, 1, Filter{})
		if err != nil {
			return false, err
		}
		if len(found) == 0 || found[0].MessageID != id { // purged meanwhile
			return false, ErrNoReply
		}
		reply = found[0]
		return true, nil
	})
	return reply, err
}

// Outbox yields the replies to messages of the session's role with ids above after, ordered by id and each once, and
// waits for more until ctx ends or the loop breaks. To miss none and handle none twice across restarts, store the id of
// each reply in the transaction that handles it, and pass it as after; 0 starts at the first reply.
//
// The last element is an error, as Wait returns it. Outbox holds one connection of the pool, even while the loop's
// body runs. A body that uses the pool needs a second one.
func Outbox(ctx context.Context, pool *pgxpool.Pool, after turnkeeper.ReplyID,
	f Filter) iter.Seq2[turnkeeper.Reply, error] {
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

// poll is the polling interval, in case a doorbell is lost. Tests change it.
var poll = 2 * time.Second

const (
	patience   = 30 * time.Second       // maximum time of retries while the database is unavailable
	afterBreak = 500 * time.Millisecond // pause before a retry
	goodbye    = 5 * time.Second        // timeout of unlisten
)

// follow calls look immediately, at each doorbell for an ended turn, and at each poll, until look is done or
// fails.
func follow(ctx context.Context, pool *pgxpool.Pool, look func(context.Context, DB) (done bool, err error)) error {
	answered := time.Now()
	var lost error // of the last attempt; nil: the database has answered since
	for {
		err := listen(ctx, pool, func(ctx context.Context, db DB) (bool, error) {
			done, err := look(ctx, db)
			if err == nil {
				answered, lost = time.Now(), nil
			}
			return done, err
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			if _, unreachable := errors.AsType[*pgconn.ConnectError](err); unreachable {
				lost = err
			}
			return ended(ctx, lost)
		case !passes(err) || time.Since(answered) > patience:
			return plain(err)
		}
		lost = err
		select {
		case <-ctx.Done():
		case <-time.After(afterBreak):
		}
	}
}

// ended returns the cause of ctx's end, with the error that kept the database from answering, if any.
func ended(ctx context.Context, lost error) error {
	if lost == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w; the database could not be reached: %w", context.Cause(ctx), plain(lost))
}

// listen is follow on one connection.
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
			_ = conn.Conn().Close(ctx) // the pool must not reuse a connection that listens
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

// ring waits for the doorbell, at most poll.
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

// passes reports whether an error is temporary: the database is unavailable, but did not refuse the query.
func passes(err error) bool {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, class := range []string{"08", "53", "57P"} { // connection, resources, shutdown
			if strings.HasPrefix(server.Code, class) {
				return true
			}
		}
		return false
	}
	return !errors.Is(err, turnkeeper.ErrNotFound) && !errors.Is(err, ErrNoReply) &&
		!errors.Is(err, puddle.ErrClosedPool)
}
