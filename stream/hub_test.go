package stream_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/stream"
)

// New events are read once for any number of watchers, and each gets all of them.
func TestWatchersShareTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &table{rings: make(chan struct{})}
		hub := stream.NewHub(source, nil)
		const watchers, events = 100, 50
		var group sync.WaitGroup
		for range watchers {
			group.Go(func() {
				var seen []int64
				for event, err := range hub.Follow(t.Context(), turn, 0) {
					if err != nil {
						t.Error(err)
					}
					seen = append(seen, event.Seq)
				}
				if len(seen) != events+1 || !slices.IsSorted(seen) || seen[events] != events+1 {
					t.Errorf("a watcher saw %v", seen)
				}
			})
		}
		for range events {
			time.Sleep(100 * time.Millisecond)
			source.add(turnkeeper.EventBlockDelta)
		}
		source.add(turnkeeper.EventTurnComplete)
		group.Wait()
		if source.reads > 4*events {
			t.Errorf("the source was read %d times for %d watchers", source.reads, watchers)
		}
		if source.released != 1 {
			t.Errorf("%d subscriptions were ended", source.released)
		}
	})
}

// A watcher that joins late or falls far behind reads older events from the source.
func TestALateWatcherMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &table{rings: make(chan struct{})}
		hub := stream.NewHub(source, nil)
		const events = 5000
		slow := make(chan struct{})
		var group sync.WaitGroup
		watch := func(after int64, stop <-chan struct{}) {
			next := after + 1
			for event, err := range hub.Follow(t.Context(), turn, after) {
				if err != nil {
					t.Error(err)
				}
				if event.Seq != next {
					t.Errorf("event %d came in place of %d", event.Seq, next)
					return
				}
				next++
				if event.Seq == after+1 && stop != nil {
					<-stop
				}
			}
			if next != events+2 {
				t.Errorf("a watcher after %d ended before %d", after, next)
			}
		}
		source.add(turnkeeper.EventTurnStart)
		group.Go(func() { watch(0, slow) }) // blocks at its first event
		synctest.Wait()
		source.add(slices.Repeat([]turnkeeper.EventType{turnkeeper.EventBlockDelta}, events-1)...)
		time.Sleep(time.Second)
		for _, after := range []int64{0, 1, 10, 2999, 4999} {
			group.Go(func() { watch(after, nil) })
		}
		time.Sleep(time.Second)
		close(slow)
		source.add(turnkeeper.EventTurnComplete)
		group.Wait()
	})
}

// TestWatchersOfDeletedEvents follows a turn whose last two events are left, from each position, while another watcher
// is attached.
func TestWatchersOfDeletedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &table{rings: make(chan struct{})}
		source.events = []turnkeeper.Event{{TurnID: turn, Seq: 9, Type: turnkeeper.EventNotice}, {TurnID: turn, Seq: 10,
			Type: turnkeeper.EventTurnComplete}}
		hub := stream.NewHub(source, nil)
		stay := make(chan struct{})
		go func() { // keeps what it has read for the others
			for _, err := range hub.Follow(t.Context(), turn, 0) {
				if err != nil {
					t.Error(err)
				}
				<-stay
			}
		}()
		synctest.Wait()
		for after := range int64(10) {
			seen, want := []int64{}, []int64{9, 10}
			if after == 9 {
				want = want[1:]
			}
			for event, err := range hub.Follow(t.Context(), turn, after) {
				if err != nil {
					t.Error(err)
				}
				seen = append(seen, event.Seq)
			}
			if !slices.Equal(seen, want) {
				t.Errorf("after %d a watcher saw %v", after, seen)
			}
		}
		close(stay)
		synctest.Wait()
	})
}

// A source that fails is read again. A watcher that leaves does not affect others.
func TestAHubOutlastsFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		source := &table{rings: make(chan struct{}), fail: []error{away, away}}
		hub := stream.NewHub(source, nil)
		leaving, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			for _, err := range hub.Follow(leaving, turn, 0) {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
		ended := false
		group.Go(func() {
			for event, err := range hub.Follow(t.Context(), turn, 0) {
				if err != nil {
					t.Error(err)
				}
				ended = event.Type == turnkeeper.EventTurnComplete
			}
		})
		synctest.Wait()
		leave()
		time.Sleep(3 * time.Second)
		source.add(turnkeeper.EventTurnComplete)
		group.Wait()
		if !ended {
			t.Error("the watcher that stayed did not get the last event")
		}
	})
}
