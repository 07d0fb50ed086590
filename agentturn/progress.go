package agentturn

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
)

// noteEvery is the time between two writes of progress while a turn waits for a call.
const noteEvery = 500 * time.Millisecond

// until waits for done, and writes meanwhile what calls tell of their progress. A
// write that fails is made again with the next, which says why it failed; one that
// fails the fence ends with kill what is waited for, for nobody waits for it any more,
// and is the error.
func (e *execution) until(ctx context.Context, done <-chan struct{}, kill func(cause error)) error {
	var pause <-chan time.Time
	bell := e.progress.Bell()
	for {
		select {
		case <-done:
			return nil
		case <-bell:
			switch err := e.commit(ctx); {
			case err == nil:
				bell, pause = nil, time.After(noteEvery)
			case errors.Is(err, turnkeeper.ErrFenced):
				kill(turnkeeper.ErrFenced)
				<-done
				return err
			default:
				<-done
				return nil // the next write says it
			}
		case <-pause:
			bell, pause = e.progress.Bell(), nil
		}
	}
}
