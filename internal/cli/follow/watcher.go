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

// EventSource is where the database's events are read.
type EventSource struct {
	*operate.Store
	Bell *storage.Notifier
}

// Subscribe tells when there may be new events.
func (s EventSource) Subscribe() (<-chan struct{}, func()) {
	return s.Bell.Subscribe(storage.TopicTurns)
}

// A Watcher shows the turns of one message, one after the other. Its methods
// are called by one goroutine.
type Watcher struct {
	Source   stream.Source
	Progress *Progress

	id      turnkeeper.TurnID // shown now; 0: none yet
	stop    context.CancelFunc
	running sync.WaitGroup
}

// lastEvents bounds the wait for the end of a turn's stream. It is stored
// together with the reply, so that it is there, unless the turn was closed
// by others.
const lastEvents = time.Second

// Turn begins to show a turn, unless it is shown already.
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

// Settle ends the show of a turn, if whole after its last events, and leaves
// the screen in order.
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
