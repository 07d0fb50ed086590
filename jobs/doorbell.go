package jobs

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// insertTopic is the topic on which River hears that jobs were inserted.
const insertTopic = "river_insert"

// ringEvery is the minimum time between two doorbells for a queue, after ringBurst at once.
const (
	ringEvery = 10 * time.Millisecond
	ringBurst = 100
)

// A deafDriver is River's driver without River's commands. Postgres lets every role that may connect notify any
// channel, so River must not obey what it hears there: it could be made to pause a queue, cancel a job, resign as
// leader, or log a line for each notification.
type deafDriver struct {
	*riverpgxv5.Driver
	queues []string // that this client fetches from
}

var _ riverdriver.Driver[pgx.Tx] = deafDriver{}

// GetListener returns a listener that passes on doorbells only.
func (d deafDriver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	l := &doorbells{Listener: d.Driver.GetListener(p), queues: map[string]*doorbell{}}
	for _, queue := range d.queues {
		l.queues[queue] = &doorbell{}
	}
	return l
}

// A doorbells is a listener that hears only that jobs were inserted into its queues, and that only so often.
type doorbells struct {
	riverdriver.Listener
	queues map[string]*doorbell
}

// A doorbell is how often a queue's doorbell rings. River does not read a notification later than it comes, so a
// ring that comes too early is kept until it may ring: none is lost.
type doorbell struct {
	pending bool
	full    time.Time // when ringBurst rings may come at once again
}

// Listen does nothing for River's other topics. Once it listens, each queue rings, because a job may have been inserted
// before: while the connection was broken, or after the first fetch of a queue that found another one subscribed, whose
// LISTEN had not been sent yet. River calls neither it nor WaitForNotification while the other runs.
func (l *doorbells) Listen(ctx context.Context, topic string) error {
	if topic != insertTopic {
		return nil
	}
	if err := l.Listener.Listen(ctx, topic); err != nil {
		return err
	}
	for _, bell := range l.queues {
		bell.pending = true
	}
	return nil
}

// WaitForNotification returns the next ring of a queue. It keeps reading meanwhile: the server keeps what is not read.
func (l *doorbells) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	for {
		queue, wait := l.next(time.Now())
		if queue != "" {
			return &riverdriver.Notification{Topic: insertTopic, Payload: ringOf(queue)}, nil
		}
		err := l.hear(ctx, wait)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
}

// ringOf returns what River reads when jobs were inserted into a queue.
func ringOf(queue string) string { return `{"queue":` + strconv.Quote(queue) + "}" }

// hear waits for the next notification, at most for wait if that is not 0, and notes which queues it names. Anybody may
// have sent it, so it is not decoded: a ring too many only makes River look again.
func (l *doorbells) hear(ctx context.Context, wait time.Duration) error {
	until := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		until, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	n, err := l.Listener.WaitForNotification(until)
	if err != nil {
		if until.Err() != nil {
			return nil
		}
		return err
	}
	for queue, bell := range l.queues {
		bell.pending = bell.pending || strings.Contains(n.Payload, strconv.Quote(queue))
	}
	return nil
}

// next returns a queue whose doorbell rings now, or how long until one may; 0: none is pending.
func (l *doorbells) next(now time.Time) (queue string, wait time.Duration) {
	for name, bell := range l.queues {
		if !bell.pending {
			continue
		}
		early := bell.full.Add(-(ringBurst - 1) * ringEvery).Sub(now)
		if early <= 0 {
			bell.pending = false
			bell.full = later(bell.full, now).Add(ringEvery)
			return name, 0
		}
		if wait == 0 || early < wait {
			wait = early
		}
	}
	return "", wait
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
