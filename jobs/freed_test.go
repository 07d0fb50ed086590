package jobs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
)

// A fetch that waits for a slot gets it at once, however the slot becomes free; not only when it looks again after fetchPoll.
func TestAFetchGetsTheNextFreeSlot(t *testing.T) {
	for name, c := range map[string]struct {
		take func(t *testing.T, w *Worker) (free func())
		got  int
	}{
		"a turn that was handed over ends": {func(_ *testing.T, w *Worker) func() {
			_, grants := w.Reserve(1)
			return func() { w.leave(grants[0], w.running[grants[0]]) }
		}, 1},
		"a turn is not handed over": {func(_ *testing.T, w *Worker) func() {
			_, grants := w.Reserve(1)
			return func() { w.Release(grants) }
		}, 1},
		"a turn that was fetched ends": {func(t *testing.T, w *Worker) func() {
			w.fetched[7] = time.Now()
			_, leave, _ := w.enter(t.Context(), 7, "grant")
			return leave
		}, 1},
		"a job was fetched twice": {func(t *testing.T, w *Worker) func() {
			w.slots = 2
			_, _, _ = w.enter(t.Context(), 7, "grant")
			w.fetched[7] = time.Now()
			return func() { _, _, _ = w.enter(t.Context(), 7, "grant") }
		}, 1},
		"the worker stops": {func(_ *testing.T, w *Worker) func() {
			w.Reserve(1)
			return w.Drain
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &Worker{running: map[turnkeeper.GrantID]*run{}, away: map[turnkeeper.GrantID]bool{}, fetched: map[int64]time.Time{},
					changed: make(chan struct{}), slots: 1}
				free := c.take(t, w)
				began := time.Now()
				got := make(chan int)
				go func() { got <- w.reserveFetch(context.Background(), 5) }()
				synctest.Wait()
				select {
				case n := <-got:
					t.Fatalf("the fetch has %d slots, though none was free", n)
				default:
				}
				free()
				if n := <-got; n != c.got || time.Since(began) > 0 {
					t.Errorf("the fetch got %d slots after %s, want %d at once", n, time.Since(began), c.got)
				}
				if w.waiting != 0 || w.fetching != c.got {
					t.Errorf("%d fetches wait, %d slots are reserved", w.waiting, w.fetching)
				}
			})
		})
	}
}
