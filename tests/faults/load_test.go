package faults_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A load sends messages during faults. Each is answered with a standard turn.
type load struct {
	h    *env.Env
	stop context.CancelFunc
	over chan struct{}

	mu   sync.Mutex
	sent map[string]int64
}

// startLoad sends messages to six conversations in turn, until finish.
func startLoad(e *env.Env, every time.Duration) *load {
	ctx, stop := context.WithCancel(e.T.Context())
	l := &load{h: e, stop: stop, over: make(chan struct{}), sent: map[string]int64{}}
	e.T.Cleanup(stop)
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

// send sends a message by SQL, as an application does, and reports whether it was accepted. Otherwise send it
// again, with the same key.
func (l *load) send(ctx context.Context, body, conversation string) bool {
	var id int64
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := l.h.DB.QueryRow(ctx, "select turnkeeper.enqueue('clerk', $1, $2, $1)", body, conversation).Scan(&id)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[body] = id
	return true
}

// finish stops sending, waits until all messages are closed, and checks each answer.
func (l *load) finish() {
	l.h.T.Helper()
	l.stop()
	<-l.over
	var ids []int64
	for _, id := range l.sent {
		ids = append(ids, id)
	}
	l.h.AwaitClosed(ids...)
	for body, id := range l.sent {
		wantAnswered(l.h, id, body)
	}
	l.h.T.Logf("%d messages were answered", len(ids))
}

// meanwhile runs f after the request, before the reply.
func meanwhile(f func(), reply inferencetest.Reply) inferencetest.Reply {
	return func(x *inferencetest.Exchange) {
		f()
		reply(x)
	}
}
