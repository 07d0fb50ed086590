// Package stream follows a turn while it runs: first the events that are
// stored, then those that come, until the turn's last one.
//
// The table is the only source; a doorbell says "look again" and may be lost,
// so that following works as well by polling alone, only later. Nothing is
// kept here: whoever breaks off goes on after the last number it has seen. The
// package knows no database and never makes a turn wait.
package stream

import (
	"context"
	"iter"
	"time"

	"turnkeeper"
)

// A Source is where events are read. Its methods may be called by several
// goroutines at once.
type Source interface {
	// Events reads a turn's events with numbers above after, in order, at most
	// limit. None is no error.
	Events(ctx context.Context, turn turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error)

	// Subscribe returns a channel on which a value means: look again. It may
	// be nil, and values may be lost. cancel ends the subscription; it is
	// called once.
	Subscribe() (rings <-chan struct{}, cancel func())
}

// How Follow reads.
const (
	page        = 500                    // events a read
	firstPoll   = 100 * time.Millisecond // while events come
	slowestPoll = time.Second            // while none come
)

// Follow yields the events of a turn with numbers above after, in order and
// each once, and ends after the turn's last event. A round_rollback is passed
// on like every other event: what its round had streamed before is void.
//
// An error of the source is yielded with a zero event and does not end the
// sequence: a consumer that goes on is served again when the source is. The
// end of ctx does, with its cause as the last error. For a turn that does not
// exist nothing is yielded until then.
func Follow(ctx context.Context, source Source, turn turnkeeper.TurnID, after int64) iter.Seq2[turnkeeper.Event, error] {
	return func(yield func(turnkeeper.Event, error) bool) {
		rings, cancel := source.Subscribe()
		defer cancel()
		f := follower{source: source, turn: turn, after: after, yield: yield}
		wait := firstPoll
		for {
			before := f.after
			if f.catchUp(ctx) {
				return
			}
			wait = min(wait*3/2, slowestPoll)
			if f.after > before {
				wait = firstPoll
			}
			if !pause(ctx, rings, wait) {
				yield(turnkeeper.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// follower is one run of a sequence.
type follower struct {
	source Source
	turn   turnkeeper.TurnID
	after  int64
	yield  func(turnkeeper.Event, error) bool
}

// catchUp yields all that is stored, and says whether the sequence is over.
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

// pause waits for a ring or the poll. It is false when ctx has ended.
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
