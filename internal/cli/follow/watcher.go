package follow

import (
	"context"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/stream"
)

// EventSource reads events from the database.
type EventSource struct {
	*operate.Store
	Bell *storage.Notifier
}

// Subscribe returns a channel that receives when there may be new events.
func (s EventSource) Subscribe() (<-chan struct{}, func()) {
	return s.Bell.Subscribe(storage.TopicTurns)
}

// A Watcher shows the turns of one message, one after the other. It is not
// safe for concurrent use.
type Watcher struct {
	Source   stream.Source
	Progress *Progress

	id      turnkeeper.TurnID // the turn shown; 0: none yet
	stop    context.CancelFunc
	running sync.WaitGroup
}

// lastEvents is the timeout for the end of a turn's stream. The last event is
// stored together with the reply, but not if an operator or the scheduler
// closed the turn.
const lastEvents = time.Second

// Turn starts to show a turn, unless it already does.
func (w *Watcher) Turn(ctx context.Context, id turnkeeper.TurnID) {
	if id == w.id || !w.Progress.shows() {
		return
	}
	w.Settle(true)
	w.id = id
	ctx, w.stop = context.WithCancel(ctx)
	w.running.Go(func() {
		w.Progress.begin(id)
		for event, err := range stream.Follow(ctx, w.Source, id, 0) {
			if err == nil {
				w.Progress.show(event)
			}
		}
	})
}

// Settle stops showing the turn and removes the status line. With whole it
// first waits, at most lastEvents, for the end of the stream.
func (w *Watcher) Settle(whole bool) {
	if w.stop != nil {
		if whole {
			defer time.AfterFunc(lastEvents, w.stop).Stop()
		} else {
			w.stop()
		}
		w.running.Wait()
		w.stop()
	}
	w.Progress.end()
}
