package stream

import (
	"context"
	"slices"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
)

// A MessageSource also reads messages. Implementations are safe for concurrent use.
type MessageSource interface {
	Source
	// WatchedMessages reads ID, State, TurnID, ClosedAt, Waits and Turns of messages, in any order, without those that
	// do not exist.
	WatchedMessages(ctx context.Context, ids []turnkeeper.MessageID) ([]waiting.Message, error)
}

// A board holds the states of the messages that are watched. One reader reads them for all watchers, together.
type board struct {
	source MessageSource
	faults *faults
	joined chan struct{} // rings when a watcher comes

	mu      sync.Mutex
	watched map[turnkeeper.MessageID]*watched
	stop    context.CancelFunc // ends the reader; nil: none reads
	done    chan struct{}      // closed at the end of the reader
}

// A watched is a message with its watchers.
type watched struct {
	bells map[chan struct{}]struct{}
	state state
}

// A state is the state of a message at a time.
type state struct {
	message waiting.Message
	missing bool      // the message does not exist
	asked   time.Time // before the query; zero: it was not read yet
}

func newBoard(source MessageSource, faults *faults) *board {
	return &board{source: source, faults: faults, joined: make(chan struct{}, 1),
		watched: map[turnkeeper.MessageID]*watched{}}
}

func (b *board) join(ctx context.Context, id turnkeeper.MessageID, bell chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watched[id] == nil {
		b.watched[id] = &watched{bells: map[chan struct{}]struct{}{}}
	}
	b.watched[id].bells[bell] = struct{}{}
	if b.stop == nil {
		var reading context.Context
		reading, b.stop = context.WithCancel(context.WithoutCancel(ctx))
		b.done = make(chan struct{})
		go b.read(reading, b.done)
	}
	ring(b.joined)
}

// leave removes a watcher. If it was the last one of all, leave ends the reader and waits for its end.
func (b *board) leave(id turnkeeper.MessageID, bell chan struct{}) {
	b.mu.Lock()
	delete(b.watched[id].bells, bell)
	if len(b.watched[id].bells) == 0 {
		delete(b.watched, id)
	}
	var done chan struct{}
	if len(b.watched) == 0 {
		b.stop()
		b.stop, done = nil, b.done
	}
	b.mu.Unlock()
	if done != nil {
		<-done
	}
}

// now returns the newest state of a message. known is false if it was not read yet.
func (b *board) now(id turnkeeper.MessageID) (now state, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.watched[id].state
	return now, !now.asked.IsZero()
}

// read reads the states at each ring and poll. It polls less often while nothing changes, and never more often than
// minPoll.
func (b *board) read(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	rings, cancel := b.source.Subscribe()
	defer cancel()
	for wait := minPoll; ; {
		began := time.Now()
		wait = min(wait*3/2, maxPoll)
		if b.look(ctx) {
			wait = minPoll
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-rings:
		case <-b.joined:
			wait = minPoll
		case <-timer.C:
		}
		timer.Stop()
		if !pause(ctx, nil, minPoll-time.Since(began)) {
			return
		}
	}
}

// atOnce is the maximum number of messages in a query.
const atOnce = 500

// look reads the states of all watched messages, and reports whether one of them has changed.
func (b *board) look(ctx context.Context) (changed bool) {
	b.mu.Lock()
	ids := make([]turnkeeper.MessageID, 0, len(b.watched))
	for id := range b.watched {
		ids = append(ids, id)
	}
	b.mu.Unlock()
	for some := range slices.Chunk(ids, atOnce) {
		asked := time.Now()
		found, err := b.source.WatchedMessages(ctx, some)
		if err != nil { // the next look reads them again
			b.faults.add(ctx, "the states of watched messages", err)
			continue
		}
		states := map[turnkeeper.MessageID]state{}
		for _, id := range some {
			states[id] = state{missing: true, asked: asked}
		}
		for _, m := range found {
			states[m.ID] = state{message: m, asked: asked}
		}
		changed = b.set(states) || changed
	}
	return changed
}

// set stores states, and rings for their watchers.
func (b *board) set(states map[turnkeeper.MessageID]state) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, s := range states {
		w := b.watched[id]
		if w == nil {
			continue
		}
		before := w.state.message
		changed = changed || w.state.asked.IsZero() || before.State != s.message.State ||
			before.TurnID != s.message.TurnID || before.ClosedAt != s.message.ClosedAt
		w.state = s
		for bell := range w.bells {
			ring(bell)
		}
	}
	return changed
}

// ring rings a bell with a buffer of one.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
