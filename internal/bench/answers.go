package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

// answers reads the outbox once for many senders, and wakes each when its reply has come. It reads
// only the outcomes of replies.
type answers struct {
	bench  *bench
	behind int // number of replies with a smaller id that may commit later
	quit   context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	answered map[turnkeeper.MessageID]bool
	waiting  map[turnkeeper.MessageID]chan struct{}
	failed   error
}

func newAnswers(b *bench, lanes int) *answers {
	ctx, quit := context.WithCancel(context.Background())
	a := &answers{
		bench: b, behind: lanes, quit: quit, done: make(chan struct{}),
		answered: map[turnkeeper.MessageID]bool{}, waiting: map[turnkeeper.MessageID]chan struct{}{},
	}
	go a.read(ctx)
	return a
}

func (a *answers) stop() {
	a.quit()
	<-a.done
}

func (a *answers) read(ctx context.Context) {
	defer close(a.done)
	doorbells, cancel := a.bench.notifier.Subscribe(storage.TopicTurns)
	defer cancel()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for newest := int64(0); ; {
		var err error
		if newest, err = a.poll(ctx, newest); err != nil && ctx.Err() == nil {
			a.fail(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-doorbells:
		case <-poll.C:
		}
	}
}

// poll records the replies from a little before newest on, and returns the id of the newest.
func (a *answers) poll(ctx context.Context, newest int64) (int64, error) {
	rows, err := a.bench.pool.Query(ctx, "select id, message_id, outcome from turnkeeper.replies where id > $1", newest-int64(a.behind))
	if err != nil {
		return newest, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var message turnkeeper.MessageID
		var outcome string
		if err := rows.Scan(&id, &message, &outcome); err != nil {
			return newest, err
		}
		newest = max(newest, id)
		a.record(message, turnkeeper.TurnState(outcome))
	}
	return newest, rows.Err()
}

func (a *answers) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err
	for message, waiting := range a.waiting {
		close(waiting)
		delete(a.waiting, message)
	}
}

func (a *answers) record(message turnkeeper.MessageID, outcome turnkeeper.TurnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if outcome != turnkeeper.TurnSucceeded {
		a.failed = fmt.Errorf("a turn of the benchmark ended %s", outcome)
	}
	a.answered[message] = true
	if waiting := a.waiting[message]; waiting != nil {
		close(waiting)
		delete(a.waiting, message)
	}
}

func (a *answers) await(ctx context.Context, message turnkeeper.MessageID) error {
	a.mu.Lock()
	if a.answered[message] || a.failed != nil {
		defer a.mu.Unlock()
		return a.failed
	}
	answered := make(chan struct{})
	a.waiting[message] = answered
	a.mu.Unlock()
	select {
	case <-answered:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}
