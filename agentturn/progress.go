package agentturn

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
)

// progressInterval is the time between two writes of progress while a turn waits for a call.
const progressInterval = 500 * time.Millisecond

// awaitDone waits for done, and meanwhile writes the progress of calls, and what has waited for the next write.
// If the fence refuses a write, awaitDone calls kill, waits for done, and returns turnkeeper.ErrFenced. After any other
// failed write it writes no more: the next commit writes the same entry, and returns the error.
func (x *executor) awaitDone(ctx context.Context, done <-chan struct{}, kill func(cause error)) error {
	news, pause := x.progress.Bell(), x.pending.due(x.events)
	for {
		select {
		case <-done:
			return nil
		case <-news:
		case <-pause:
			news, pause = x.progress.Bell(), nil
			if len(x.events.Unwritten()) == 0 {
				continue
			}
		}
		switch err := x.commit(ctx); {
		case err == nil:
			news, pause = nil, time.After(progressInterval)
		case errors.Is(err, turnkeeper.ErrFenced):
			kill(turnkeeper.ErrFenced)
			<-done
			return err
		default:
			<-done
			return nil
		}
	}
}
