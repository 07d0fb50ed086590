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

// A Topic is what a doorbell is about.
type Topic string

// The topics.
const (
	TopicInbox Topic = "turnkeeper_inbox" // there may be something to schedule
	TopicTurns Topic = "turnkeeper_turns" // a turn ended
	TopicCalls Topic = "turnkeeper_calls" // detached calls are to stop

	TopicCancels Topic = "turnkeeper_cancels" // turns are to be cancelled

	// TopicFreed rings when a turn ended and left only room. On the wire it is TopicInbox with a payload.
	TopicFreed Topic = "turnkeeper_inbox freed"
)

// A Notifier listens for doorbells on a connection of its own. A ring says "look
// again" and carries nothing; rings may be lost, so whoever waits also polls.
type Notifier struct {
	// Quiet is how long nothing may come before the connection has to show that
	// it lives; 0: 30 s. It is set before Run.
	Quiet time.Duration
	// Worker is the process whose presence the connection shows, so that the scheduler
	// can tell a worker that is late from one that is gone. Empty: none. It is set before Run.
	Worker turnkeeper.WorkerID

	url   string
	log   *zap.Logger
	limit time.Duration // of what it asks of its connection

	mu   sync.Mutex
	subs map[*subscription]struct{}
}

type subscription struct {
	topic Topic
	rings chan struct{}
}

// NewNotifier returns a notifier; it rings while Run runs.
func NewNotifier(url string, log *zap.Logger) *Notifier {
	return &Notifier{url: url, log: log, limit: notifierTimeout, subs: map[*subscription]struct{}{}}
}

// Subscribe returns a channel that holds at most one ring of the topic, and
// the function that ends the subscription.
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

// Run listens until ctx ends. It connects again when the connection breaks, and
// then rings for every topic, since rings may have been lost meanwhile.
func (n *Notifier) Run(ctx context.Context) {
	const first, steady = 50 * time.Millisecond, time.Second
	wait := first
	for ctx.Err() == nil {
		began := time.Now()
		err := n.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		n.log.Warn("the doorbell connection broke; polling goes on", zap.Error(pg.PlainConnect(err)))
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
	for _, topic := range []Topic{TopicInbox, TopicTurns, TopicCalls, TopicCancels} {
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

// showPresence takes the lock that turnkeeper.worker_present looks for. It is shared, so it never waits for a
// connection of the same worker that the server has not yet found dead.
const showPresence = "select pg_advisory_lock_shared(1414218583, hashtext($1))"

// notifierTimeout bounds what a notifier asks of its connection.
const notifierTimeout = 5 * time.Second

// wait returns the topic of the next ring, or none when it was quiet and the
// connection has shown that it lives. A dead one would be as quiet.
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
	return "", n.ask(ctx, conn)
}

// ask has the connection show that it lives, and that its server takes writes: a
// server that has become read-only sends no notifications.
func (n *Notifier) ask(ctx context.Context, conn *pgx.Conn) error {
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
			default: // it has not looked since the last one
			}
		}
	}
}
