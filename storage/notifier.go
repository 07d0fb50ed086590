package storage

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/pause"
	"turnkeeper/storage/internal/pg"
)

// A Topic is the subject of a doorbell.
type Topic string

// The topics.
const (
	TopicInbox Topic = "turnkeeper_inbox" // there may be something to schedule
	TopicTurns Topic = "turnkeeper_turns" // a turn ended, or a delivery is due
	TopicAsks  Topic = "turnkeeper_asks"  // an ask was opened
	TopicCalls Topic = "turnkeeper_calls" // detached calls must stop

	TopicCancels Topic = "turnkeeper_cancels" // turns must be cancelled

	// TopicFreed rings when a turn ended and nothing else changed. On the wire it is TopicInbox with a payload.
	TopicFreed Topic = "turnkeeper_inbox freed"
)

// A Notifier listens for doorbells on its own connection. A ring means "query again" and
// carries no data. Rings may be lost, so subscribers must also poll.
type Notifier struct {
	// Quiet is the time without notifications after which the connection is checked;
	// 0: 30 s. Set it before Run.
	Quiet time.Duration
	// Worker is the worker process to which the connection belongs. The scheduler looks for
	// the connection to distinguish a slow worker from a dead one. Empty: none. Set it before Run.
	Worker turnkeeper.WorkerID

	url   string
	log   *zap.Logger
	limit time.Duration // timeout of queries and connection attempts

	mu   sync.Mutex
	subs map[*subscription]struct{}
}

type subscription struct {
	topic Topic
	rings chan struct{}
}

// NewNotifier returns a notifier. It rings only while Run runs.
func NewNotifier(url string, log *zap.Logger) *Notifier {
	return &Notifier{url: url, log: log, limit: notifierTimeout, subs: map[*subscription]struct{}{}}
}

// Subscribe returns a channel with a buffer of one that receives the rings of the topic,
// and a function that ends the subscription.
func (n *Notifier) Subscribe(topic Topic) (rings <-chan struct{}, cancel func()) {
	sub := &subscription{topic, make(chan struct{}, 1)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subs[sub] = struct{}{}
	return sub.rings, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.subs, sub)
	}
}

// Run listens until ctx ends. It reconnects when the connection breaks, and then rings
// for every topic, because rings may have been lost.
func (n *Notifier) Run(ctx context.Context) {
	const first, steady = 50 * time.Millisecond, time.Second
	wait := first
	for ctx.Err() == nil {
		began := time.Now()
		err := n.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		n.log.Warn("the notification connection broke; polling continues", zap.Error(pg.Translate(err)))
		if time.Since(began) > steady {
			wait = first
		}
		if pause.For(ctx, wait) != nil {
			return
		}
		wait = min(wait*2, 5*time.Second)
	}
}

func (n *Notifier) listen(ctx context.Context) error {
	conn, err := pg.ConnectOne(ctx, n.url, "turnkeeper bell", n.limit)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	for _, topic := range []Topic{TopicInbox, TopicTurns, TopicAsks, TopicCalls, TopicCancels} {
		if _, err := conn.Exec(ctx, "listen "+string(topic)); err != nil {
			return err
		}
	}
	if n.Worker != "" {
		if _, err := conn.Exec(ctx, showPresence, string(n.Worker)); err != nil {
			return err
		}
	}
	n.ring("")
	for {
		topic, err := n.wait(ctx, conn)
		if err != nil {
			return err
		}
		if topic != "" {
			n.ring(topic)
		}
	}
}

// showPresence takes the lock that turnkeeper.worker_present looks for. The lock is shared, so that it never waits
// for a dead connection of the same worker that the server has not closed yet.
const showPresence = "select pg_advisory_lock_shared(1414218583, hashtext($1))"

// notifierTimeout is the timeout of a notifier's queries and connection attempts.
const notifierTimeout = 5 * time.Second

// wait returns the topic of the next notification. If none comes for the time n.Quiet,
// it checks the connection and returns an empty topic.
func (n *Notifier) wait(ctx context.Context, conn *pgx.Conn) (Topic, error) {
	quiet := n.Quiet
	if quiet <= 0 {
		quiet = 30 * time.Second
	}
	waiting, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	note, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return topicOf(note), nil
	case ctx.Err() != nil || !pgconn.Timeout(err):
		return "", err
	}
	return "", n.check(ctx, conn)
}

// check fails if the connection is dead, or if its server has become read-only: such a
// server sends no notifications.
func (n *Notifier) check(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, n.limit)
	defer cancel()
	var mode string
	if err := conn.QueryRow(ctx, "show transaction_read_only").Scan(&mode); err != nil {
		return err
	}
	if mode == "on" {
		return errReadOnly
	}
	return nil
}

var errReadOnly = errors.New("the server has become read-only")

func topicOf(note *pgconn.Notification) Topic {
	if note.Payload == "" {
		return Topic(note.Channel)
	}
	return Topic(note.Channel + " " + note.Payload)
}

// ring rings for one topic, or for all when topic is empty.
func (n *Notifier) ring(topic Topic) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for sub := range n.subs {
		if topic == "" || sub.topic == topic {
			select {
			case sub.rings <- struct{}{}:
			default: // the last ring is not received yet
			}
		}
	}
}
