// Package stream follows a turn while it runs: it yields the stored events, then new ones,
// until the turn's last event.
//
// The table of events is the only source. A doorbell just causes an earlier read and may be
// lost; polling alone works too. A client that disconnects can continue after the number of
// the last event it has seen. The package uses no database and never makes a turn wait.
package stream

import (
	"context"
	"iter"
	"time"

	"turnkeeper"
)

// A Source reads events. Implementations are safe for concurrent use.
type Source interface {
	// Events returns a turn's events with numbers above after, in order, at most limit.
	// An unknown turn has none.
	Events(ctx context.Context, turn turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error)

	// Subscribe returns a channel that receives a value when there may be new events. It
	// may be nil, and values may be lost. cancel ends the subscription, and must be
	// called once.
	Subscribe() (rings <-chan struct{}, cancel func())
}

// How Follow reads.
const (
	page    = 500                    // events per read
	minPoll = 100 * time.Millisecond // while events arrive
	maxPoll = time.Second            // while none arrive
)

// Follow yields the events of a turn with numbers above after, in order and each once, and
// ends after the turn's last event. Like any event it yields round_rollback, which voids the
// earlier events of its round.
//
// An error of the source is yielded with a zero event, and does not end the sequence: Follow
// reads again if the consumer continues. When ctx ends, Follow yields its cause as an error
// and ends. For an unknown turn it yields nothing until then.
func Follow(ctx context.Context, source Source, turn turnkeeper.TurnID,
	after int64) iter.Seq2[turnkeeper.Event, error] {
	return func(yield func(turnkeeper.Event, error) bool) {
		rings, cancel := source.Subscribe()
		defer cancel()
		f := follower{source: source, turn: turn, after: after, yield: yield}
		wait := minPoll
		for {
			before := f.after
			if f.catchUp(ctx) {
				return
			}
			wait = min(wait*3/2, maxPoll)
			if f.after > before {
				wait = minPoll
			}
			if !pause(ctx, rings, wait) {
				yield(turnkeeper.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// A follower is one iteration of Follow.
type follower struct {
	source Source
	turn   turnkeeper.TurnID
	after  int64
	yield  func(turnkeeper.Event, error) bool
}

// catchUp yields all stored events, and reports whether the sequence is over.
func (f *follower) catchUp(ctx context.Context) (over bool) {
	for {
		events, err := f.source.Events(ctx, f.turn, f.after, page)
		if err != nil {
			return ctx.Err() == nil && !f.yield(turnkeeper.Event{}, err)
		}
		for _, event := range events {
			f.after = event.Seq
			if !f.yield(event, nil) || event.Type.Terminal() {
				return true
			}
		}
		if len(events) < page {
			return false
		}
	}
}

// pause waits for a ring, at most poll. It returns false if ctx has ended.
func pause(ctx context.Context, rings <-chan struct{}, poll time.Duration) bool {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-rings:
	case <-timer.C:
	}
	return ctx.Err() == nil
}
