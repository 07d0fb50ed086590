package cli

import (
	"context"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/stream"
)

// eventSource is where the database's events are read.
type eventSource struct {
	*operate.Store
	bell *storage.Notifier
}

func (s eventSource) Subscribe() (<-chan struct{}, func()) {
	return s.bell.Subscribe(storage.TopicTurns)
}

// A watcher shows the turns of one message, one after the other. Its methods
// are called by one goroutine.
type watcher struct {
	source   stream.Source
	progress *progress

	id      turnkeeper.TurnID // shown now; 0: none yet
	stop    context.CancelFunc
	running sync.WaitGroup
}

// lastEvents bounds the wait for the end of a turn's stream. It is stored
// together with the reply, so that it is there, unless the turn was closed
// by others.
const lastEvents = time.Second

// turn begins to show a turn, unless it is shown already.
func (w *watcher) turn(ctx context.Context, id turnkeeper.TurnID) {
	if id == w.id || !w.progress.shows() {
		return
	}
	w.settle(true)
	w.id = id
	ctx, w.stop = context.WithCancel(ctx)
	w.running.Go(func() {
		w.progress.begin(id)
		for event, err := range stream.Follow(ctx, w.source, id, 0) {
			if err == nil {
				w.progress.show(event)
			}
		}
	})
}

// settle ends the show of a turn, if whole after its last events, and leaves
// the screen in order.
func (w *watcher) settle(whole bool) {
	if w.stop != nil {
		if whole {
			defer time.AfterFunc(lastEvents, w.stop).Stop()
		} else {
			w.stop()
		}
		w.running.Wait()
		w.stop()
	}
	w.progress.end()
}
