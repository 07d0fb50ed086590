package httpapi_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"turnkeeper"
	"turnkeeper/httpapi"
)

// A counted store counts reads of events.
type counted struct {
	httpapi.Store
	reads atomic.Int64
}

func (c *counted) Events(ctx context.Context, turn turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error) {
	c.reads.Add(1)
	return c.Store.Events(ctx, turn, after, limit)
}

// Many watch one turn, and the database is asked little more than for one.
func TestManyWatchersOfOneTurn(t *testing.T) {
	store := &counted{}
	h := newHouse(t, func(c *httpapi.Config) { store.Store, c.Store = c.Store, store })
	const watchers, events = 100, 40
	d := h.turn("clerk", "talk")
	var group sync.WaitGroup
	all := make([]*watcher, watchers)
	for i := range all {
		w := &watcher{base: h.base}
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
	d.finish("said")
	group.Wait()
	last := one[int64](h, "select last_seq from turnkeeper.turns where id = $1", d.id)
	for i, w := range all {
		if int64(len(w.seen)) != last || !w.over {
			t.Errorf("watcher %d saw %d of %d events", i, len(w.seen), last)
		}
	}
	t.Logf("%d reads for %d watchers of %d events", store.reads.Load(), watchers, last)
	if reads := store.reads.Load(); reads >= watchers {
		t.Errorf("events were read %d times", reads)
	}
}

// A client that reads nothing makes nobody wait.
func TestAClientThatDoesNotRead(t *testing.T) {
	h := newHouse(t)
	d := h.turn("clerk", "talk")
	stuck := h.stuck(fmt.Sprintf("/v1/turns/%d/events", d.id))
	defer stuck()
	long := fmt.Sprintf("%08000d", 0)
	for range 500 { // more more than the buffers between
		d.say(long)
	}
	d.finish("said")
	w := &watcher{base: h.base}
	if err := w.watch(t.Context(), fmt.Sprintf("/v1/turns/%d/events", d.id), 0); err != nil || !w.over {
		t.Errorf("another client saw %d events, %v", len(w.seen), err)
	}
}
