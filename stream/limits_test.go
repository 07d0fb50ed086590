package stream

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/internal/limittest"
	"turnkeeper/internal/waiting"
)

// A tape is a MessageSource that writes down when it is read.
type tape struct {
	began time.Time

	mu     sync.Mutex
	events []turnkeeper.Event
	reads  []time.Duration // of events
	looks  []time.Duration // at messages
	asked  int             // the most messages of one look
	turn   turnkeeper.TurnID
}

func (s *tape) Events(_ context.Context, _ turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, time.Since(s.began))
	rest := slices.Clone(s.events[min(int(after), len(s.events)):])
	return rest[:min(limit, len(rest))], nil
}

func (s *tape) WatchedMessages(_ context.Context, ids []turnkeeper.MessageID) ([]waiting.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks, s.asked = append(s.looks, time.Since(s.began)), max(s.asked, len(ids))
	var found []waiting.Message
	for _, id := range ids {
		found = append(found, waiting.Message{Message: turnkeeper.Message{ID: id, State: turnkeeper.MessageWaiting,
			TurnID: s.turn}})
	}
	return found, nil
}

func (*tape) Subscribe() (<-chan struct{}, func()) { return nil, func() {} }

// begin gives the messages a turn.
func (s *tape) begin(turn turnkeeper.TurnID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = turn
}

// say adds n events, the last of which may be the turn's last.
func (s *tape) say(n int, last turnkeeper.EventType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		kind := turnkeeper.EventBlockDelta
		if i == n-1 {
			kind = last
		}
		s.events = append(s.events, turnkeeper.Event{Seq: int64(len(s.events) + 1), Type: kind})
	}
}

// TestLimits tries each limit of how a source is read.
func TestLimits(t *testing.T) {
	limittest.Check(t, map[string]limittest.Row{
		"page": {At: 500, Takes: func(t *testing.T, n int) bool { // n events come with one read
			s := &tape{}
			s.say(n, turnkeeper.EventTurnComplete)
			drain(Follow(t.Context(), s, 1, 0))
			return len(s.reads) == 1
		}},
		"atOnce": {At: 500, Takes: func(t *testing.T, n int) bool { // n messages are asked for with one query
			s := &tape{}
			b := newBoard(s, &faults{})
			for id := range n {
				b.watched[turnkeeper.MessageID(id+1)] = &watched{}
			}
			b.look(t.Context())
			return len(s.looks) == 1 && s.asked == n
		}},
		"tailEvents": {At: 2000, Takes: func(_ *testing.T, n int) bool { // of n events a tail has the first
			tail := &tail{subs: map[chan struct{}]struct{}{}}
			for i := range n {
				tail.add(turnkeeper.Event{Seq: int64(i + 1)})
			}
			events, ok := tail.since(int64(n-1000), 2000)
			if !ok || len(events) != 1000 || events[0].Seq != int64(n-999) {
				t.Errorf("of %d it does not have the last thousand: %d", n, len(events))
			}
			_, ok = tail.since(0, 1)
			return ok
		}},
		// an error is not reported within n seconds of another
		"reportEvery": {At: 59, Takes: func(t *testing.T, n int) (silent bool) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				f := &faults{report: func(string, error) { told++ }}
				f.add(t.Context(), "x", errors.New("first"))
				time.Sleep(time.Duration(n) * time.Second)
				f.add(t.Context(), "x", errors.New("second"))
				silent = told == 1
			})
			return silent
		}},
		"minPoll": {Test: "TestHowOftenASourceIsRead"},
		"maxPoll": {Test: "TestHowOftenASourceIsRead"},
	})
}

// drain reads events up to the last one, or to an error.
func drain[E any](events iter.Seq2[E, error]) {
	for _, err := range events {
		if err != nil {
			return
		}
	}
}

// TestHowOftenASourceIsRead checks when a turn and a message are read without a doorbell: less and less often while
// nothing happens, and often again once something did.
func TestHowOftenASourceIsRead(t *testing.T) {
	ms := func(all ...float64) (times []time.Duration) {
		for _, n := range all {
			times = append(times, time.Duration(n*float64(time.Millisecond)))
		}
		return times
	}
	synctest.Test(t, func(t *testing.T) {
		s := &tape{began: time.Now()}
		ctx, end := context.WithCancel(t.Context())
		go drain(Follow(ctx, s, 1, 0))
		time.Sleep(3 * time.Second)
		s.say(1, turnkeeper.EventBlockDelta)
		time.Sleep(1200 * time.Millisecond)
		end()
		synctest.Wait()
		want := ms(0, 150, 375, 712.5, 1218.75, 1978.125, 2978.125, 3978.125, 4078.125)
		if !slices.Equal(s.reads[:min(len(s.reads), len(want))], want) {
			t.Errorf("a turn is read at %v", s.reads)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &tape{began: time.Now()}
		ctx, end := context.WithCancel(t.Context())
		go drain(NewHub(s, nil).Message(ctx, 1, Cursor{}))
		time.Sleep(4 * time.Second)
		s.begin(7)
		time.Sleep(1200 * time.Millisecond)
		end()
		synctest.Wait()
		want := ms(0, 100, 250, 475, 812.5, 1318.75, 2078.125, 3078.125, 4078.125, 4178.125, 4328.125)
		if !slices.Equal(s.looks[:min(len(s.looks), len(want))], want) {
			t.Errorf("a message is read at %v", s.looks)
		}
	})
}

// TestWatchersWhoLeave lets either of two watchers leave first, by the end of its context and by the end of its loop:
// the other one misses nothing, and one that comes after both reads as if there had been nobody.
func TestWatchersWhoLeave(t *testing.T) {
	type hub struct {
		*Hub
		*tape
	}
	turns := func(ctx context.Context, h hub, seen func() bool) {
		for _, err := range h.Follow(ctx, 1, 0) {
			if err != nil || !seen() {
				return
			}
		}
	}
	messages := func(ctx context.Context, h hub, seen func() bool) {
		for _, err := range h.Message(ctx, 1, Cursor{}) {
			if err != nil || !seen() {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		watch func(context.Context, hub, func() bool)
		all   int64 // events
	}{"a turn": {turns, 10}, "a message": {messages, 11}} {
		for leaver := range 2 {
			for _, byContext := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					s := &script{}
					h := hub{NewHub(s, nil), &s.tape}
					var seen [2]atomic.Int64
					var end [2]context.CancelFunc
					var leave [2]atomic.Bool
					var gone [2]chan struct{}
					for i := range 2 {
						var ctx context.Context
						ctx, end[i] = context.WithCancel(t.Context())
						gone[i] = make(chan struct{})
						go func() {
							defer close(gone[i])
							c.watch(ctx, h, func() bool { seen[i].Add(1); return !leave[i].Load() })
						}()
						synctest.Wait() // the first one joins first
					}
					s.say(3, turnkeeper.EventBlockDelta)
					time.Sleep(2 * time.Second)
					if byContext {
						end[leaver]()
					} else {
						leave[leaver].Store(true)
					}
					s.say(2, turnkeeper.EventBlockDelta)
					time.Sleep(2 * time.Second)
					<-gone[leaver]
					if n := len(h.tails[1].subs); n != 1 || h.Watchers() != 1 {
						t.Errorf("%s: %d subscriptions and %d watchers are left for one", name, n, h.Watchers())
					}
					s.say(5, turnkeeper.EventTurnComplete)
					time.Sleep(2 * time.Second)
					s.close()
					<-gone[1-leaver]
					if n := seen[1-leaver].Load(); n != c.all {
						t.Errorf("%s: after watcher %d left (by its context: %t) the other has seen %d of %d events",
							name, leaver, byContext, n, c.all)
					}
					reads, looks := len(s.reads), len(s.looks)
					time.Sleep(time.Minute)
					if len(s.reads) != reads || len(s.looks) != looks {
						t.Errorf("%s is read without watchers", name)
					}
					late := int64(0)
					c.watch(t.Context(), h, func() bool { late++; return true })
					if late != c.all || h.Watchers() != 0 {
						t.Errorf("%s: a later watcher sees %d of %d events; %d are left", name, late,
							c.all, h.Watchers())
					}
					end[0]()
					end[1]()
				})
			}
		}
	}
}

// A script is a tape whose message runs in one turn, until it is closed.
type script struct {
	tape
	closed time.Time
}

func (s *script) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = time.Now()
}

func (s *script) WatchedMessages(ctx context.Context, ids []turnkeeper.MessageID) ([]waiting.Message, error) {
	found, err := s.tape.WatchedMessages(ctx, ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range found {
		found[i].State, found[i].TurnID, found[i].Turns = turnkeeper.MessageRunning, 1, []turnkeeper.TurnID{1}
		if found[i].ClosedAt = s.closed; !s.closed.IsZero() {
			found[i].State = turnkeeper.MessageSucceeded
		}
	}
	return found, err
}
