package stream

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"turnkeeper"
)

// A Hub follows turns and messages for many watchers, and reads the new events of each turn, and the state of each
// message, once for all of them. It is safe for concurrent use.
type Hub struct {
	source MessageSource
	faults *faults
	board  *board

	mu    sync.Mutex
	tails map[turnkeeper.TurnID]*tail
}

// NewHub returns a Hub. It reads only while there are watchers. It retries errors of the source, and reports at most
// one a minute, with what could not be read; a nil report is not called.
func NewHub(source MessageSource, report func(what string, err error)) *Hub {
	f := &faults{report: report}
	return &Hub{source: source, faults: f, board: newBoard(source, f), tails: map[turnkeeper.TurnID]*tail{}}
}

// reportEvery is the minimum time between two reports of errors.
const reportEvery = time.Minute

// faults reports errors of the source.
type faults struct {
	report func(what string, err error) // nil: nobody is told

	mu   sync.Mutex
	last time.Time // of the last report
}

func (f *faults) add(ctx context.Context, what string, err error) {
	if f.report == nil || ctx.Err() != nil { // nobody waits for it any more
		return
	}
	f.mu.Lock()
	due := f.last.IsZero() || time.Since(f.last) >= reportEvery
	if due {
		f.last = time.Now()
	}
	f.mu.Unlock()
	if due {
		f.report(what, err)
	}
}

// Follow is like the function Follow, but it retries most errors of the source instead of
// yielding them.
func (h *Hub) Follow(ctx context.Context, turn turnkeeper.TurnID, after int64) iter.Seq2[turnkeeper.Event, error] {
	return func(yield func(turnkeeper.Event, error) bool) {
		t := h.join(ctx, turn, after)
		defer h.leave(turn, t)
		Follow(ctx, t, turn, after)(yield)
	}
}

// Watchers returns the number of watchers of all turns.
func (h *Hub) Watchers() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tails {
		n += t.watchers
	}
	return n
}

func (h *Hub) join(ctx context.Context, turn turnkeeper.TurnID, after int64) *tail {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tails[turn]
	if t == nil {
		reading, stop := context.WithCancel(context.WithoutCancel(ctx))
		t = &tail{source: h.source, faults: h.faults, before: after, stop: stop, done: make(chan struct{}),
			subs: map[chan struct{}]struct{}{}}
		h.tails[turn] = t
		go t.read(reading, turn, after)
	}
	t.watchers++
	return t
}

// leave removes a watcher. If it was the last one, leave stops reading and waits for its
// end.
func (h *Hub) leave(turn turnkeeper.TurnID, t *tail) {
	h.mu.Lock()
	t.watchers--
	last := t.watchers == 0
	if last {
		delete(h.tails, turn)
	}
	h.mu.Unlock()
	if last {
		t.stop()
		<-t.done
	}
}

// tailEvents is the number of a turn's newest events that a tail holds. Watchers that are
// further behind read the source.
const tailEvents = 1000

// A tail holds the newest events of a turn. It is the Source of the turn's watchers.
type tail struct {
	source   Source
	faults   *faults
	watchers int // under the hub's lock
	stop     context.CancelFunc
	done     chan struct{}

	mu     sync.Mutex
	before int64              // number before that of the first event
	events []turnkeeper.Event // in order; with a gap where old events were deleted
	subs   map[chan struct{}]struct{}
}

func (t *tail) read(ctx context.Context, turn turnkeeper.TurnID, after int64) {
	defer close(t.done)
	for event, err := range Follow(ctx, t.source, turn, after) {
		if err != nil {
			t.faults.add(ctx, "the events of a turn", err)
			continue
		}
		t.add(event)
	}
}

func (t *tail) add(event turnkeeper.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.events) >= 2*tailEvents {
		t.before = t.events[tailEvents-1].Seq
		t.events = append([]turnkeeper.Event(nil), t.events[tailEvents:]...)
	}
	t.events = append(t.events, event)
	for sub := range t.subs {
		ring(sub)
	}
}

// Events implements Source.
func (t *tail) Events(ctx context.Context, turn turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error) {
	if events, ok := t.since(after, limit); ok {
		return events, nil
	}
	return t.source.Events(ctx, turn, after, limit)
}

// since returns the events after a number. ok is false if the tail no longer has them.
func (t *tail) since(after int64, limit int) (events []turnkeeper.Event, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if after < t.before {
		return nil, false
	}
	// Numbers have a gap where old events were deleted.
	from, _ := slices.BinarySearchFunc(t.events, after+1, func(e turnkeeper.Event, seq int64) int {
		return cmp.Compare(e.Seq, seq)
	})
	rest := t.events[from:]
	return rest[:min(limit, len(rest))], true
}

// Subscribe implements Source.
func (t *tail) Subscribe() (<-chan struct{}, func()) {
	sub := make(chan struct{}, 1)
	t.subscribe(sub)
	return sub, func() { t.unsubscribe(sub) }
}

func (t *tail) subscribe(sub chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs[sub] = struct{}{}
}

func (t *tail) unsubscribe(sub chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subs, sub)
}
