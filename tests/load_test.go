package tests_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"turnkeeper/inference/inferencetest"
)

// A load is messages that keep arriving while faults are made, each with a
// standard turn to be answered by.
type load struct {
	h    *house
	stop context.CancelFunc
	over chan struct{}

	mu   sync.Mutex
	sent map[string]int64
}

// startLoad sends messages into six conversations, one after the other, until
// finish.
func (h *house) startLoad(every time.Duration) *load {
	ctx, stop := context.WithCancel(h.t.Context())
	l := &load{h: h, stop: stop, over: make(chan struct{}), sent: map[string]int64{}}
	h.t.Cleanup(stop)
	go func() {
		defer close(l.over)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if l.send(ctx, fmt.Sprint("message ", n), fmt.Sprint("conversation ", n%6)) {
				n++
			}
		}
	}()
	return l
}

// send sends a message by SQL, as an application does, and says whether that was
// acknowledged. One that was not is sent again, with its key.
func (l *load) send(ctx context.Context, body, conversation string) bool {
	var id int64
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := l.h.db.QueryRow(ctx, "select turnkeeper.enqueue('clerk', $1, $2, $1)", body, conversation).Scan(&id)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[body] = id
	return true
}

// finish ends the load, waits until all is answered, and checks each answer.
func (l *load) finish() {
	l.h.t.Helper()
	l.stop()
	<-l.over
	var ids []int64
	for _, id := range l.sent {
		ids = append(ids, id)
	}
	l.h.awaitClosed(ids...)
	for body, id := range l.sent {
		l.h.answered(id, body)
	}
	l.h.t.Logf("%d messages were answered", len(ids))
}

// meanwhile runs f when the model has been asked, before it answers.
func meanwhile(f func(), reply reply) reply {
	return func(x *inferencetest.Exchange) {
		f()
		reply(x)
	}
}
