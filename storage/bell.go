package storage

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/pause"
)

// A Topic is what a doorbell is about.
type Topic string

// The topics.
const (
	TopicInbox Topic = "turnkeeper_inbox" // there may be something to schedule
	TopicTurns Topic = "turnkeeper_turns" // a turn ended
	TopicCalls Topic = "turnkeeper_calls" // detached calls are to stop

	TopicCancels Topic = "turnkeeper_cancels" // turns are to be cancelled

	// TopicFreed rings when a turn ended and left only room. On the wire it is a word
	// with TopicInbox, for schedulers of older releases.
	TopicFreed Topic = "turnkeeper_inbox freed"
)

// A Bell listens for doorbells on a connection of its own. A ring says "look
// again" and carries nothing; rings may be lost, so whoever waits also polls.
type Bell struct {
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

// NewBell returns a bell; it rings while Run runs.
func NewBell(url string, log *zap.Logger) *Bell {
	return &Bell{url: url, log: log, limit: bellTime, subs: map[*subscription]struct{}{}}
}

// Subscribe returns a channel that holds at most one ring of the topic, and
// the function that ends the subscription.
func (b *Bell) Subscribe(topic Topic) (rings <-chan struct{}, cancel func()) {
	sub := &subscription{topic, make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subs[sub] = struct{}{}
	return sub.rings, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, sub)
	}
}

// Run listens until ctx ends. It connects again when the connection breaks, and
// then rings for every topic, since rings may have been lost meanwhile.
func (b *Bell) Run(ctx context.Context) {
	const first, steady = 50 * time.Millisecond, time.Second
	wait := first
	for ctx.Err() == nil {
		began := time.Now()
		err := b.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		b.log.Warn("the doorbell connection broke; polling goes on", zap.Error(plainConnect(err)))
		if time.Since(began) > steady {
			wait = first
		}
		if pause.For(ctx, wait) != nil {
			return
		}
		wait = min(wait*2, 5*time.Second)
	}
}

func (b *Bell) listen(ctx context.Context) error {
	conn, err := b.connect(ctx)
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
	if b.Worker != "" {
		if _, err := conn.Exec(ctx, showPresence, string(b.Worker)); err != nil {
			return err
		}
	}
	b.ring("")
	for {
		topic, err := b.wait(ctx, conn)
		if err != nil {
			return err
		}
		if topic != "" {
			b.ring(topic)
		}
	}
}

// showPresence takes the lock that turnkeeper.worker_present looks for. It is shared, so it never waits for a
// connection of the same worker that the server has not yet found dead.
const showPresence = "select pg_advisory_lock_shared(1414218583, hashtext($1))"

// bellTime bounds what a bell asks of its connection.
const bellTime = 5 * time.Second

func (b *Bell) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(b.url)
	if err != nil {
		return nil, errUnreadableURL
	}
	cfg.ConnectTimeout = b.limit
	cfg.DialFunc = dialer.DialContext
	cfg.Tracer = answerBound{limit: b.limit}
	cfg.RuntimeParams["application_name"] = "turnkeeper bell"
	maps.Copy(cfg.RuntimeParams, findDead) // the server must notice soon that the worker's host is gone
	return pgx.ConnectConfig(ctx, cfg)
}

// wait returns the topic of the next ring, or none when it was quiet and the
// connection has shown that it lives. A dead one would be as quiet.
func (b *Bell) wait(ctx context.Context, conn *pgx.Conn) (Topic, error) {
	quiet := b.Quiet
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
	return "", b.ask(ctx, conn)
}

// ask has the connection show that it lives, and that its server takes writes: a
// server that has become read-only sends no notifications.
func (b *Bell) ask(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
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
func (b *Bell) ring(topic Topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for sub := range b.subs {
		if topic == "" || sub.topic == topic {
			select {
			case sub.rings <- struct{}{}:
			default: // it has not looked since the last one
			}
		}
	}
}
