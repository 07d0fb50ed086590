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
func (c *modelCall) listen(ctx context.Context, provider inference.Provider, request inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
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
		case <-c.overdue():
			c.flush()
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

// delta takes in a piece of the answer, and writes what has waited long enough.
func (c *modelCall) delta(d inference.Delta) {
	if c.unwritable != nil {
		return
	}
	point := PointModelMore
	if !c.stream.Started() {
		point = PointModelFirst
	}
	c.t.at(c.ctx, point)
	if c.stream.Delta(d) {
		c.flush()
	}
}

// flush writes the events so far by themselves.
func (c *modelCall) flush() {
	c.stream.Flush()
	if err := c.t.commit(c.ctx); err != nil {
		c.unwritable = err
		c.stop(err)
	}
}

// overdue fires when text has waited long enough to be written; nil: none waits, or it
// could not be written.
func (c *modelCall) overdue() <-chan time.Time {
	if c.unwritable != nil {
		return nil
	}
	return c.stream.Overdue()
}
