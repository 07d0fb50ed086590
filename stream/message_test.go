package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/waiting"
	"turnkeeper/stream"
)

// An inbox is a MessageSource in memory with one message.
type inbox struct {
	mu      sync.Mutex
	message waiting.Message // with the ID 0 it does not exist
	events  map[turnkeeper.TurnID][]turnkeeper.Event
	fail    int    // next reads that fail
	onRead  func() // called once, by the next read of events; nil: nothing
	looks   int
	reads   int
	subs    int
}

func (s *inbox) Events(_ context.Context, id turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.fails() {
		return nil, errors.New("away")
	}
	if s.onRead != nil {
		s.onRead()
		s.onRead = nil
	}
	rest := slices.Clone(s.events[id][min(int(after), len(s.events[id])):])
	return rest[:min(limit, len(rest))], nil
}

func (s *inbox) WatchedMessages(_ context.Context, ids []turnkeeper.MessageID) ([]waiting.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.fails() {
		return nil, errors.New("away")
	}
	if s.message.ID == 0 || !slices.Contains(ids, s.message.ID) {
		return nil, nil
	}
	m := s.message
	m.Turns, m.Waits = slices.Clone(m.Turns), slices.Clone(m.Waits)
	return []waiting.Message{m}, nil
}

func (s *inbox) fails() bool {
	s.fail--
	return s.fail >= 0
}

func (s *inbox) Subscribe() (<-chan struct{}, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs++
	return nil, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.subs--
	}
}

// change changes the message after a while.
func (s *inbox) change(change func(m *waiting.Message)) {
	time.Sleep(3 * time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.message)
}

// say adds events to a turn, which it makes the message's newest.
func (s *inbox) say(turn turnkeeper.TurnID, kinds ...turnkeeper.EventType) {
	s.change(func(m *waiting.Message) {
		if m.TurnID != turn {
			m.Turns = append(m.Turns, turn)
		}
		m.TurnID, m.State, m.Waits = turn, turnkeeper.MessageRunning, nil
		for _, kind := range kinds {
			s.events[turn] = append(s.events[turn], turnkeeper.Event{TurnID: turn,
				Seq: int64(len(s.events[turn]) + 1), Type: kind})
		}
	})
}

func newInbox() *inbox {
	return &inbox{
		message: waiting.Message{
			Message: turnkeeper.Message{ID: 1, State: turnkeeper.MessageWaiting},
			Waits:   []waiting.Wait{{Reason: waiting.NoWorker}},
		},
		events: map[turnkeeper.TurnID][]turnkeeper.Event{},
	}
}

// play is a message whose first turn fails, whose second one waits for a person, and which is answered.
func (s *inbox) play() {
	s.change(func(m *waiting.Message) { m.Waits[0].Silent = time.Hour }) // no news
	s.change(func(m *waiting.Message) { m.Waits[0].Reason = waiting.NextTick })
	s.say(7, turnkeeper.EventTurnStart, turnkeeper.EventBlockDelta)
	s.say(7, turnkeeper.EventTurnError)
	s.change(func(m *waiting.Message) {
		m.State, m.Waits = turnkeeper.MessageWaiting, []waiting.Wait{{Reason: waiting.LaneBackoff}}
	})
	s.say(9, turnkeeper.EventTurnStart)
	s.say(9, turnkeeper.EventTurnWaiting)
	s.change(func(m *waiting.Message) { m.Waits = []waiting.Wait{{Reason: waiting.Person}} })
	s.say(9, turnkeeper.EventTurnResumed)
	s.say(9, turnkeeper.EventTurnComplete)
	s.change(func(m *waiting.Message) { m.State, m.ClosedAt = turnkeeper.MessageSucceeded, time.Now() })
}

var played = []string{
	" message_waiting no_worker", " message_waiting next_tick", "7.1 turn_start", "7.2 block_delta", "7.3 turn_error",
	" message_waiting lane_backoff",
	"9.1 turn_start", "9.2 turn_waiting", " message_waiting person", "9.3 turn_resumed", "9.4 turn_complete",
	"end message_closed",
}

// watch collects what Message yields, at most limit events.
func watch(ctx context.Context, hub *stream.Hub, after string, limit int) (all []string, err error) {
	cursor, err := stream.ParseCursor(after)
	if err != nil {
		return nil, err
	}
	for e, err := range hub.Message(ctx, 1, cursor) {
		if err != nil {
			return all, err
		}
		text := e.ID() + " " + string(e.Type)
		if e.Type == stream.MessageWaiting {
			text += " " + string(e.Message.Waits[0].Reason)
		}
		if all = append(all, text); len(all) == limit {
			break
		}
	}
	return all, nil
}

func TestAMessageFromItsWaitToItsEnd(t *testing.T) {
	for name, failures := range map[string]int{"reads succeed": 0, "reads fail for a while": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newInbox()
				source.fail = failures
				go source.play()
				all, err := watch(t.Context(), stream.NewHub(source, nil), "", 0)
				if diff := cmp.Diff(played, all); diff != "" || err != nil {
					t.Errorf("error %v, events (-want +got):\n%s", err, diff)
				}
				if source.subs != 0 {
					t.Errorf("%d subscriptions were not ended", source.subs)
				}
			})
		})
	}
}

// TestAMessageFromEachPosition resumes after each event, when the message is closed and while it is open.
func TestAMessageFromEachPosition(t *testing.T) {
	stored := slices.DeleteFunc(slices.Clone(played), func(text string) bool { return strings.HasPrefix(text, " ") })
	for i, text := range stored[:len(stored)-1] {
		id, _, _ := strings.Cut(text, " ")
		synctest.Test(t, func(t *testing.T) {
			source := newInbox()
			source.play()
			hub := stream.NewHub(source, nil)
			all, err := watch(t.Context(), hub, id, 0)
			if diff := cmp.Diff(stored[i+1:], all); diff != "" || err != nil {
				t.Errorf("after %s: error %v, events (-want +got):\n%s", text, err, diff)
			}
			if turn, _, _ := strings.Cut(id, "."); turn == "9" {
				return
			}
			// The number is beyond the newest one: the database was restored from a backup.
			all, err = watch(t.Context(), hub, "7.1000", 0)
			if diff := cmp.Diff(stored[3:], all); diff != "" || err != nil {
				t.Errorf("after a number of the future: error %v, events (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestReasonsThatAreOver checks that no reason to wait is sent after an event that is newer.
func TestReasonsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newInbox()
		source.say(7, turnkeeper.EventTurnStart, turnkeeper.EventTurnWaiting)
		source.message.Waits = []waiting.Wait{{Reason: waiting.Person}}
		source.onRead = func() {
			source.events[7] = append(source.events[7], turnkeeper.Event{TurnID: 7, Seq: 3,
				Type: turnkeeper.EventTurnResumed})
			source.message.Waits = nil
		}
		go source.say(7, turnkeeper.EventTurnComplete)
		all, err := watch(t.Context(), stream.NewHub(source, nil), "", 4)
		if want := []string{"7.1 turn_start", "7.2 turn_waiting", "7.3 turn_resumed",
			"7.4 turn_complete"}; !slices.Equal(all, want) || err != nil {
			t.Errorf("saw %q, %v", all, err)
		}
	})
}

// TestATurnWithoutItsLastEvent checks that a turn whose events were deleted does not keep back the next one.
func TestATurnWithoutItsLastEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newInbox()
		source.say(7, turnkeeper.EventTurnStart)
		source.say(9, turnkeeper.EventTurnStart)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		all, err := watch(ctx, stream.NewHub(source, nil), "", 2)
		if want := []string{"7.1 turn_start", "9.1 turn_start"}; !slices.Equal(all, want) || err != nil {
			t.Errorf("saw %q, %v", all, err)
		}
	})
}

func TestWatchersOfAMessageShareTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newInbox()
		hub := stream.NewHub(source, nil)
		began := time.Now()
		go source.play()
		const watchers = 100
		var group sync.WaitGroup
		for range watchers {
			group.Go(func() {
				if all, err := watch(t.Context(), hub, "", 0); !slices.Equal(all, played) || err != nil {
					t.Errorf("a watcher saw %v, %v", all, err)
				}
			})
		}
		group.Wait()
		if most := int(time.Since(began)/(100*time.Millisecond)) + 2; source.looks > most ||
			source.reads > most+2*watchers {
			t.Errorf("%d watchers caused %d looks at the message and %d reads of events in %s", watchers, source.looks,
				source.reads, time.Since(began))
		}
	})
}

func TestTheEndOfWatchingAMessage(t *testing.T) {
	for i := range played {
		synctest.Test(t, func(t *testing.T) {
			source := newInbox()
			go source.play()
			all, err := watch(t.Context(), stream.NewHub(source, nil), "", i+1)
			if !slices.Equal(all, played[:i+1]) || err != nil || source.subs != 0 {
				t.Errorf("the consumer broke off after %v, %v; %d subscriptions are left", all, err, source.subs)
			}
			time.Sleep(time.Hour) // the play ends
		})
	}
	synctest.Test(t, func(t *testing.T) {
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
		defer cancel()
		all, err := watch(ctx, stream.NewHub(newInbox(), nil), "", 0)
		if len(all) != 1 || !errors.Is(err, enough) {
			t.Errorf("saw %v, %v", all, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		source := newInbox()
		go func() {
			source.say(7, turnkeeper.EventTurnStart)
			source.change(func(m *waiting.Message) { m.ID = 0 })
		}()
		all, err := watch(t.Context(), stream.NewHub(source, nil), "", 0)
		if len(all) != 2 || !errors.Is(err, turnkeeper.ErrNotFound) {
			t.Errorf("of a purged message came %v, %v", all, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a turn at the position that the message does not have, yet
		source := newInbox()
		go source.say(7, turnkeeper.EventTurnStart, turnkeeper.EventBlockDelta)
		all, err := watch(t.Context(), stream.NewHub(source, nil), "7.1", 1)
		if !slices.Equal(all, []string{"7.2 block_delta"}) || err != nil {
			t.Errorf("saw %v, %v", all, err)
		}
	})
}

func FuzzCursors(f *testing.F) {
	for _, text := range []string{"", "end", "0.0", "7.9", "7", ".", "-1.1", "1.-1", "01.1",
		"9223372036854775808.1", "1.1.1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := stream.ParseCursor(text)
		if err == nil && text != "" && c.String() != text {
			t.Errorf("%q is read as %q", text, c)
		}
		if again, err := stream.ParseCursor(fmt.Sprint(c)); err != nil || again != c {
			t.Errorf("%q is read as %+v, and that as %+v, %v", text, c, again, err)
		}
	})
}

// TestErrorsOfTheSourceAreReported checks that reads that fail are repeated, and told, but not each time.
func TestErrorsOfTheSourceAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newInbox()
		source.fail = 50
		told := map[string]int{}
		hub := stream.NewHub(source, func(what string, err error) { told[what+": "+err.Error()]++ })
		go source.play()
		if all, err := watch(t.Context(), hub, "", 0); err != nil || len(all) == 0 {
			t.Errorf("%d events came, %v", len(all), err)
		}
		synctest.Wait()
		if told["the states of watched messages: away"] != 1 || len(told) != 1 {
			t.Errorf("told is %v", told)
		}
		// After a minute, and of events too.
		time.Sleep(time.Minute)
		source.fail = 3
		for _, err := range hub.Follow(t.Context(), 7, 0) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if told["the events of a turn: away"] != 1 || len(told) != 2 {
			t.Errorf("told is %v", told)
		}
	})
}
