package bench

import (
	"context"
	"sync"
)

// answers wakes the lanes whose messages are answered. The zero value is not usable.
type answers struct {
	mu      sync.Mutex
	waiting map[int64]chan struct{} // by message; closed: answered before the lane waited
	failed  error
}

func newAnswers() *answers { return &answers{waiting: map[int64]chan struct{}{}} }

// entry returns the channel that is closed when the message is answered.
func (a *answers) entry(message int64) chan struct{} {
	answered := a.waiting[message]
	if answered == nil {
		answered = make(chan struct{})
		a.waiting[message] = answered
	}
	return answered
}

// record wakes the lane of a message. Call it once for each message.
func (a *answers) record(message int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.entry(message))
}

// fail makes every wait end with the error.
func (a *answers) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err
	for message, answered := range a.waiting {
		select {
		case <-answered:
		default:
			close(answered)
		}
		delete(a.waiting, message)
	}
}

func (a *answers) await(ctx context.Context, message int64) error {
	a.mu.Lock()
	if a.failed != nil {
		defer a.mu.Unlock()
		return a.failed
	}
	answered := a.entry(message)
	a.mu.Unlock()
	select {
	case <-answered:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, message)
	return a.failed
}
