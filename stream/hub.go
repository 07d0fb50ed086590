package stream

import (
	"context"
	"iter"
	"sync"

	"turnkeeper"
)

// A Hub follows turns for many watchers: however many follow one turn, its new
// events are read once. Its methods may be called by several goroutines.
type Hub struct {
	source Source

	mu    sync.Mutex
	tails map[turnkeeper.TurnID]*tail
}

// NewHub returns a hub. It reads while somebody follows.
func NewHub(source Source) *Hub {
	return &Hub{source: source, tails: map[turnkeeper.TurnID]*tail{}}
}

// Follow is the function Follow, but that errors of the source are as a rule not
// yielded: it is read again until it answers.
func (h *Hub) Follow(ctx context.Context, turn turnkeeper.TurnID, after int64) iter.Seq2[turnkeeper.Event, error] {
	return func(yield func(turnkeeper.Event, error) bool) {
		t := h.join(ctx, turn, after)
		defer h.leave(turn, t)
		Follow(ctx, t, turn, after)(yield)
	}
}

// Watchers is how many follow a turn now.
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
		t = &tail{source: h.source, before: after, stop: stop, done: make(chan struct{}), subs: map[chan struct{}]struct{}{}}
		h.tails[turn] = t
		go t.read(reading, turn, after)
	}
	t.watchers++
	return t
}

// leave waits until the reading has ended where nobody watches any more.
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

// kept is how many of a turn's newest events a tail keeps: whoever is further
// behind reads the source.
const kept = 1000

// A tail is the end of a turn's stream, for those who watch it. It is their Source.
type tail struct {
	source   Source
	watchers int // under the hub's lock
	stop     context.CancelFunc
	done     chan struct{}

	mu     sync.Mutex
	before int64              // the number before the first event
	events []turnkeeper.Event // without gaps
	subs   map[chan struct{}]struct{}
}

func (t *tail) read(ctx context.Context, turn turnkeeper.TurnID, after int64) {
	defer close(t.done)
	for event, err := range Follow(ctx, t.source, turn, after) {
		if err == nil {
			t.add(event)
		}
	}
}

func (t *tail) add(event turnkeeper.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.events) >= 2*kept {
		t.before = t.events[kept-1].Seq
		t.events = append([]turnkeeper.Event(nil), t.events[kept:]...)
	}
	t.events = append(t.events, event)
	for sub := range t.subs {
		select {
		case sub <- struct{}{}:
		default:
		}
	}
}

// Events is of Source.
func (t *tail) Events(ctx context.Context, turn turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error) {
	if events, has := t.since(after, limit); has {
		return events, nil
	}
	return t.source.Events(ctx, turn, after, limit)
}

// since are the events after a number, if the tail reaches so far back.
func (t *tail) since(after int64, limit int) (events []turnkeeper.Event, has bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if after < t.before {
		return nil, false
	}
	from := min(after-t.before, int64(len(t.events)))
	rest := t.events[from:]
	return rest[:min(limit, len(rest))], true
}

// Subscribe is of Source.
func (t *tail) Subscribe() (<-chan struct{}, func()) {
	sub := make(chan struct{}, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs[sub] = struct{}{}
	return sub, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.subs, sub)
	}
}
