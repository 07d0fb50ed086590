package httpapi_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/waiting"
)

// counted is a store that counts reads of events, and of watched messages.
type counted struct {
	httpapi.Store
	reads, looks atomic.Int64
	bodies       atomic.Int64 // watched messages that were read with their text
}

func (c *counted) WatchedMessages(ctx context.Context, ids []turnkeeper.MessageID) ([]waiting.Message, error) {
	c.looks.Add(1)
	all, err := c.Store.WatchedMessages(ctx, ids)
	for _, m := range all {
		c.bodies.Add(int64(len(m.Body)))
	}
	return all, err
}

func (c *counted) Events(ctx context.Context, turn turnkeeper.TurnID, after int64,
	limit int) ([]turnkeeper.Event, error) {
	c.reads.Add(1)
	return c.Store.Events(ctx, turn, after, limit)
}

// TestManyWatchersOfOneTurn checks that many clients watching one turn cause few more queries than one client.
func TestManyWatchersOfOneTurn(t *testing.T) {
	store := &counted{}
	h := newEnv(t, func(c *httpapi.Config) { store.Store, c.Store = c.Store, store })
	const watchers, events = 1000, 40
	_, h.base = h.serveUpTo(watchers+10, func(c *httpapi.Config) {
		store.Store, c.Store, c.Streams = c.Store, store, watchers
	})
	d := h.turn("clerk", "talk")
	var group sync.WaitGroup
	all := make([]*watcher, watchers)
	for i := range all {
		w := &watcher{base: h.base, began: make(chan struct{})}
		all[i] = w
		group.Go(func() {
			if err := w.watch(t.Context(), fmt.Sprintf("/v1/turns/%d/events", d.id), 0); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range events {
		d.say(strconv.Itoa(i))
	}
	for _, w := range all { // wait until every stream has started
		<-w.began
	}
	before := store.reads.Load()
	for i := range events {
		d.say(strconv.Itoa(i))
	}
	d.finish("said")
	group.Wait()
	last := one[int64](h, "select last_seq from turnkeeper.turns_now where id = $1", d.id)
	for i, w := range all {
		if int64(len(w.seen)) != last || !w.over {
			t.Errorf("watcher %d saw %d of %d events", i, len(w.seen), last)
		}
	}
	// A single watcher reads on every notification and poll.
	reads := store.reads.Load() - before
	t.Logf("%d reads for %d watchers of %d more events", reads, watchers, events)
	if reads > 4*events {
		t.Errorf("events were read %d times", reads)
	}
}

// TestManyStoredEvents checks that stored events are read in few queries, also while others watch.
func TestManyStoredEvents(t *testing.T) {
	store := &counted{}
	h := newEnv(t, func(c *httpapi.Config) { store.Store, c.Store = c.Store, store })
	const stored = 10_000
	d := h.turn("clerk", "talk")
	d.many(stored)
	d.finish("said")
	last := one[int64](h, "select last_seq from turnkeeper.turns_now where id = $1", d.id)
	began := time.Now()
	w := &watcher{base: h.base}
	if err := w.watch(t.Context(), fmt.Sprintf("/v1/turns/%d/events", d.id), 0); err != nil || !w.over {
		t.Fatalf("it saw %d events, %v", len(w.seen), err)
	}
	if int64(len(w.seen)) != last || last < stored || w.seen[0] != 1 || w.seen[len(w.seen)-1] != last {
		t.Errorf("it saw %d of %d events", len(w.seen), last)
	}
	t.Logf("%d stored events were caught up in %s, by %d reads", last, time.Since(began).Round(time.Millisecond),
		store.reads.Load())
	if reads := store.reads.Load(); reads > 2*(stored/500+2) {
		t.Errorf("they were read by %d reads", reads)
	}
}

// TestAClientThatDoesNotRead checks that a client that does not read its stream does not delay others.
func TestAClientThatDoesNotRead(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "talk")
	stuck := h.stuck(fmt.Sprintf("/v1/turns/%d/events", d.id))
	defer stuck()
	long := fmt.Sprintf("%08000d", 0)
	for range 500 { // more than the network buffers hold
		d.say(long)
	}
	d.finish("said")
	w := &watcher{base: h.base}
	if err := w.watch(t.Context(), fmt.Sprintf("/v1/turns/%d/events", d.id), 0); err != nil || !w.over {
		t.Errorf("another client saw %d events, %v", len(w.seen), err)
	}
}
