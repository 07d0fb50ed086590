package agentturn

import (
	"context"
	"time"

	"turnkeeper/inference"
)

// ahead is how many pieces a stream may be ahead of the turn: a short answer comes
// whole without waiting for it piece by piece.
const ahead = 64

// listen makes a model call and hands on what it streams. Text of the round's stream
// is written when it has waited long enough, whether or not more comes. The call has a
// goroutine of its own, so that all that the turn holds stays with the turn's.
func (s *stream) listen(ctx context.Context, provider inference.Provider, request inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
	ctx, leave := context.WithCancel(ctx) // also where a panic ends the turn
	defer leave()
	deltas, done := make(chan inference.Delta, ahead), make(chan struct{})
	var (
		res    inference.Response
		err    error
		broken any
	)
	go func() {
		defer close(done)
		defer func() { broken = recover() }() // told where the turn's own are
		res, err = provider.Generate(ctx, request, func(d inference.Delta) {
			select {
			case deltas <- d:
			case <-ctx.Done():
			}
		})
	}()
	for {
		select {
		case d := <-deltas:
			onDelta(d)
		case <-s.overdue():
			s.flush()
		case <-done:
			for len(deltas) > 0 {
				onDelta(<-deltas)
			}
			if broken != nil {
				panic(broken)
			}
			return res, err
		}
	}
}

// overdue fires when the oldest text that waits has waited long enough; nil: none
// waits, or it could not be written.
func (s *stream) overdue() <-chan time.Time {
	if s.waiting == 0 || s.err != nil {
		return nil
	}
	return time.After(time.Until(s.since.Add(flushAfter)))
}
