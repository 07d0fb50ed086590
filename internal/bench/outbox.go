package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
)

// A reader is a sender's connections, and reads the replies to all of its messages in one place, outside the process
// that runs the turns.
type reader struct {
	pool    *pgxpool.Pool
	answers *answers
	quit    context.CancelFunc
	done    chan struct{}
}

// openReader starts after the replies that exist.
func openReader(ctx context.Context, database string, from replies) (*reader, error) {
	pool, err := newPool(ctx, database)
	if err != nil {
		return nil, err
	}
	r := &reader{pool: pool, answers: newAnswers(), done: make(chan struct{})}
	o := &outbox{replies: from, pool: pool, missing: map[int64]time.Time{}}
	if err := pool.QueryRow(ctx, "select coalesce(max(id), 0) from "+from.table).Scan(&o.read); err != nil {
		pool.Close()
		return nil, err
	}
	ctx, r.quit = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		if err := o.follow(ctx, r.answers); err != nil && ctx.Err() == nil {
			r.answers.fail(err)
		}
	}()
	return r, nil
}

func (r *reader) url() string { return "" }

func (r *reader) close() error {
	r.quit()
	<-r.done
	r.pool.Close()
	return nil
}

// replies is where a system writes its replies: a table with ascending ids, and the channel on which it notifies.
type replies struct{ channel, table, message, outcome string }

// An outbox reads the outcomes of new replies, each once.
type outbox struct {
	replies
	pool    *pgxpool.Pool
	read    int64               // the highest id that was read
	missing map[int64]time.Time // lower ids that were not, with when this was found: their replies may commit later
}

// The outbox is read again after pollEvery without a notification. An id that is missing for giveUp
// belongs to a transaction that was rolled back.
const (
	pollEvery = time.Second
	giveUp    = 10 * time.Second
)

// follow records answers until ctx ends. Notifications that arrive while it reads cause one more read.
func (o *outbox) follow(ctx context.Context, to *answers) error {
	pooled, err := o.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // it keeps listening
	reader, err := o.pool.Acquire(ctx)
	if err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	own := reader.Hijack()
	defer own.Close(context.WithoutCancel(ctx))
	// The statement is planned while the table is empty. Without this it would read the whole table forever.
	if _, err := own.Exec(ctx, "set enable_seqscan = off"); err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rings, ended := make(chan struct{}, 1), make(chan error, 1)
	if _, err := conn.Exec(ctx, "listen "+o.channel); err != nil {
		return err
	}
	go func() {
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				ended <- err
				return
			}
			select {
			case rings <- struct{}{}:
			default:
			}
		}
	}()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-rings:
		case <-poll.C:
		case err := <-ended:
			return err
		}
		if err := o.readNew(ctx, own, to); err != nil {
			return err
		}
	}
}

func (o *outbox) readNew(ctx context.Context, conn *pgx.Conn, to *answers) error {
	rows, err := conn.Query(ctx, fmt.Sprintf(
		"select id, %s, %s from %s where id > $1 or id = any($2::bigint[]) order by id", o.message, o.outcome, o.table),
		o.read, slices.Collect(maps.Keys(o.missing)))
	if err != nil {
		return err
	}
	now := time.Now()
	var id, message int64
	var ended string
	_, err = pgx.ForEachRow(rows, []any{&id, &message, &ended}, func() error {
		if ended != string(turnkeeper.TurnSucceeded) {
			return fmt.Errorf("a turn of the benchmark ended %s", ended)
		}
		o.saw(id, now)
		to.record(message)
		return nil
	})
	return err
}

// saw notes that a reply was read. Ids are seen in ascending order.
func (o *outbox) saw(id int64, now time.Time) {
	delete(o.missing, id)
	for ; o.read < id; o.read++ {
		if o.read+1 < id {
			o.missing[o.read+1] = now
		}
	}
	maps.DeleteFunc(o.missing, func(_ int64, since time.Time) bool { return now.Sub(since) >= giveUp })
}
