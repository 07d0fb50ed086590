package stream_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/waiting"
	"turnkeeper/stream"
)

const turn = turnkeeper.TurnID(7)

// A table is a Source in memory.
type table struct {
	mu       sync.Mutex
	events   []turnkeeper.Event
	fail     []error // errors of the next reads
	rings    chan struct{}
	reads    int
	released int
}

func (t *table) Events(_ context.Context, id turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
	if len(t.fail) > 0 {
		err := t.fail[0]
		t.fail = t.fail[1:]
		return nil, err
	}
	if id != turn {
		return nil, nil
	}
	rest := slices.DeleteFunc(slices.Clone(t.events), func(e turnkeeper.Event) bool { return e.Seq <= after })
	return rest[:min(limit, len(rest))], nil
}

// WatchedMessages finds none.
func (t *table) WatchedMessages(context.Context, []turnkeeper.MessageID) ([]waiting.Message, error) {
	return nil, nil
}

func (t *table) Subscribe() (<-chan struct{}, func()) {
	return t.rings, func() { t.released++ }
}

func (t *table) add(kinds ...turnkeeper.EventType) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, kind := range kinds {
		t.events = append(t.events, turnkeeper.Event{TurnID: turn, Seq: int64(len(t.events) + 1), Type: kind})
	}
}

// follow collects the events that Follow yields.
func follow(ctx context.Context, source stream.Source, after int64) (seqs []int64, errs []error) {
	for event, err := range stream.Follow(ctx, source, turn, after) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		seqs = append(seqs, event.Seq)
	}
	return seqs, errs
}

func TestFollowReadsWhatIsStored(t *testing.T) {
	long := make([]turnkeeper.EventType, 1200)
	for i := range long {
		long[i] = turnkeeper.EventBlockDelta
	}
	long[500] = turnkeeper.EventRoundRollback
	cases := []struct {
		name  string
		kinds []turnkeeper.EventType
		after int64
		want  int // events
	}{
		{"from the beginning", []turnkeeper.EventType{turnkeeper.EventTurnStart, turnkeeper.EventTurnComplete}, 0, 2},
		{"after a number", []turnkeeper.EventType{turnkeeper.EventTurnStart, turnkeeper.EventTurnComplete}, 1, 1},
		{"an error ends it too", []turnkeeper.EventType{turnkeeper.EventTurnStart, turnkeeper.EventTurnError}, 0, 2},
		{"many pages, rollback and all", append(long, turnkeeper.EventTurnComplete), 0, 1201},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				source := &table{}
				source.add(c.kinds...)
				seqs, errs := follow(t.Context(), source, c.after)
				var want []int64
				for i := range c.want {
					want = append(want, c.after+int64(i)+1)
				}
				if diff := cmp.Diff(want, seqs); diff != "" || errs != nil {
					t.Errorf("errors %v, events (-want +got):\n%s", errs, diff)
				}
				if source.released != 1 {
					t.Errorf("the subscription was ended %d times", source.released)
				}
				if waited := time.Since(began); waited > 0 {
					t.Errorf("waited %s for what was there", waited)
				}
			})
		})
	}
}

func TestFollowWaits(t *testing.T) {
	cases := []struct {
		name  string
		rings bool
		most  time.Duration // maximum delay of an event
	}{
		{"a ring is heard at once", true, 0},
		{"without rings the poll finds it", false, time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &table{}
				if c.rings {
					source.rings = make(chan struct{}, 1)
				}
				source.add(turnkeeper.EventTurnStart)
				var added time.Time
				go func() {
					time.Sleep(30*time.Second + time.Millisecond) // fake time; polling is slow by then
					added = time.Now()
					source.add(turnkeeper.EventTurnComplete)
					if c.rings {
						source.rings <- struct{}{}
					}
				}()
				seqs, errs := follow(t.Context(), source, 0)
				if diff := cmp.Diff([]int64{1, 2}, seqs); diff != "" || errs != nil {
					t.Errorf("errors %v, events (-want +got):\n%s", errs, diff)
				}
				if late := time.Since(added); late > c.most {
					t.Errorf("seen after %s, want at most %s", late, c.most)
				}
				if source.reads > 50 {
					t.Errorf("%d reads in half a minute", source.reads)
				}
			})
		})
	}
}

func TestFollowGoesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		source := &table{fail: []error{away, away}}
		source.add(turnkeeper.EventTurnStart, turnkeeper.EventTurnComplete)
		seqs, errs := follow(t.Context(), source, 0)
		if diff := cmp.Diff([]int64{1, 2}, seqs); diff != "" || len(errs) != 2 {
			t.Errorf("errors %v, events (-want +got):\n%s", errs, diff)
		}
	})
}

func TestFollowEnds(t *testing.T) {
	t.Run("when the context does, with its cause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			enough := errors.New("enough")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
			defer cancel()
			source := &table{}
			source.add(turnkeeper.EventTurnStart)
			seqs, errs := follow(ctx, source, 0)
			if len(seqs) != 1 || len(errs) != 1 || !errors.Is(errs[0], enough) {
				t.Errorf("got events %v and errors %v, want one event and the cause", seqs, errs)
			}
		})
	})
	t.Run("when the consumer breaks off", func(t *testing.T) {
		source := &table{}
		source.add(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)
		for _, err := range stream.Follow(t.Context(), source, turn, 0) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if source.released != 1 {
			t.Errorf("the subscription was ended %d times", source.released)
		}
	})
	t.Run("when the consumer breaks off at an error", func(t *testing.T) {
		source := &table{fail: []error{errors.New("away")}}
		for _, err := range stream.Follow(t.Context(), source, turn, 0) {
			if err == nil {
				t.Error("an event came before the error")
			}
			break
		}
		if source.reads != 1 {
			t.Errorf("%d reads, want 1", source.reads)
		}
	})
}
