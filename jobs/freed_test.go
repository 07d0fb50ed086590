package jobs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"turnkeeper"
)

// A fetch that waits for a slot gets it at once, however the slot becomes free; not only when it looks again after
// fetchPoll.
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
		"another fetch finds nothing": {fetching(nil), 1},
		"another fetch fails":         {fetching(errors.New("on purpose")), 1},
		"the worker stops": {func(_ *testing.T, w *Worker) func() {
			w.Reserve(1)
			return w.Drain
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &Worker{running: map[turnkeeper.GrantID]*run{}, away: map[turnkeeper.GrantID]bool{},
					fetched: map[int64]time.Time{},
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

// fetching takes the slot with a fetch that finds nothing.
func fetching(fails error) func(t *testing.T, w *Worker) func() {
	return func(t *testing.T, w *Worker) func() {
		f := &fetcher{fails: fails, goOn: make(chan struct{})}
		go func() {
			_, _ = slotExecutor{f, w, newGate()}.JobGetAvailable(t.Context(),
				&riverdriver.JobGetAvailableParams{Queue: Queue, MaxToLock: 5})
		}()
		synctest.Wait()
		return func() { close(f.goOn) }
	}
}

// A fetcher is River's executor of fetches.
type fetcher struct {
	riverdriver.Executor
	asked int // jobs
	has   int
	fails error
	rings int
	goOn  chan struct{} // nil: it does not wait
}

func (f *fetcher) JobGetAvailable(_ context.Context,
	p *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	f.asked = p.MaxToLock
	if f.goOn != nil {
		<-f.goOn
	}
	result := &riverdriver.JobGetAvailableResult{}
	for id := range min(f.has, p.MaxToLock) {
		result.Jobs = append(result.Jobs, &rivertype.JobRow{ID: int64(id)})
	}
	return result, f.fails
}

func (f *fetcher) NotifyMany(context.Context, *riverdriver.NotifyManyParams) error {
	f.rings++
	return nil
}

// A fetch asks for no more jobs than there are free slots. Afterwards it keeps a slot for each job that it got, and no
// other. It rings if there may be more jobs.
func TestAFetchKeepsTheSlotsOfItsJobs(t *testing.T) {
	for _, c := range []struct{ busy, has, asked, fetched int }{{0, 9, 3, 3}, {1, 9, 2, 2}, {2, 9, 1, 1}, {0, 2, 3, 2},
		{0, 0, 3, 0}, {1, 1,
			2, 1}} {
		for _, fails := range []error{nil, errors.New("on purpose")} {
			w := &Worker{
				running: map[turnkeeper.GrantID]*run{}, away: map[turnkeeper.GrantID]bool{},
				fetched: map[int64]time.Time{},
				changed: make(chan struct{}), slots: 3,
			}
			w.Reserve(c.busy)
			f := &fetcher{has: c.has, fails: fails}
			_, err := slotExecutor{f, w, newGate()}.JobGetAvailable(t.Context(),
				&riverdriver.JobGetAvailableParams{Queue: Queue, MaxToLock: 5})
			fetched, rings := c.fetched, 0
			if c.fetched == c.asked {
				rings = 1
			}
			if fails != nil {
				fetched, rings = 0, 0
			}
			if !errors.Is(err, fails) || f.asked != c.asked || f.rings != rings || w.fetching != 0 ||
				len(w.fetched) != fetched || w.free() != 3-c.busy-fetched {
				t.Errorf("%+v, error %v: asked for %d jobs, %s", c, err, f.asked, w.Resources())
			}
		}
	}
}

// TestWhichGrantsAreForgotten checks that a worker forgets the grants that it has given back, and no others: not those
// that it works, and not those that it left since.
func TestWhichGrantsAreForgotten(t *testing.T) {
	w := &Worker{away: map[turnkeeper.GrantID]bool{"given": true, "works": true, "left since": true}}
	w.forgetAway([]turnkeeper.GrantID{"given", "works"}, []turnkeeper.GrantID{"works", "another"})
	if w.away["given"] || !w.away["works"] || !w.away["left since"] {
		t.Errorf("%v", w.away)
	}
}
