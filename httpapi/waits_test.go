package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

// parkedStore shows a turn that waits for one reason, and its message.
type parkedStore struct {
	httpapi.Store

	current atomic.Pointer[waiting.Wait] // streams that are ending may still read it
}

func (s *parkedStore) wait() waiting.Wait { return *s.current.Load() }

func (s *parkedStore) of(m waiting.Message) waiting.Message {
	m.State, m.Waits = turnkeeper.MessageRunning, []waiting.Wait{s.wait()}
	return m
}

func (s *parkedStore) turn(t waiting.Turn) waiting.Turn {
	t.State, t.DueAt, t.EndedAt, t.Waits = s.wait().State, s.wait().Until, time.Time{}, []waiting.Wait{s.wait()}
	return t
}

func (s *parkedStore) turns(all []waiting.Turn, err error) ([]waiting.Turn, error) {
	for i := range all {
		all[i] = s.turn(all[i])
	}
	return all, err
}

func (s *parkedStore) FindTurns(ctx context.Context, f operate.Search) ([]waiting.Turn, int64, error) {
	all, next, err := s.Store.FindTurns(ctx, f)
	all, err = s.turns(all, err)
	return all, next, err
}

func (s *parkedStore) OpenTurns(ctx context.Context, limit int) ([]waiting.Turn, error) {
	return s.turns(s.Store.OpenTurns(ctx, limit))
}

func (s *parkedStore) FindMessages(ctx context.Context, f operate.Search) ([]waiting.Message, int64, error) {
	all, next, err := s.Store.FindMessages(ctx, f)
	for i := range all {
		all[i] = s.of(all[i])
	}
	return all, next, err
}

func (s *parkedStore) WaitingMessage(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error) {
	m, err := s.Store.WaitingMessage(ctx, id)
	return s.of(m), err
}

func (s *parkedStore) WatchedMessages(ctx context.Context, ids []turnkeeper.MessageID) ([]waiting.Message, error) {
	all, err := s.Store.WatchedMessages(ctx, ids)
	for i := range all {
		all[i] = s.of(all[i])
	}
	return all, err
}

func (s *parkedStore) ViewTurn(ctx context.Context, id turnkeeper.TurnID) (operate.TurnView, error) {
	v, err := s.Store.ViewTurn(ctx, id)
	v.Turn, v.Message = s.turn(waiting.Turn{Turn: v.Turn}).Turn, s.of(v.Message)
	return v, err
}

func (s *parkedStore) Lanes(ctx context.Context, p operate.Page) ([]operate.LaneView, error) {
	all, err := s.Store.Lanes(ctx, p)
	for i := range all {
		all[i].Waits = []waiting.Wait{s.wait()}
	}
	return all, err
}

func (s *parkedStore) Totals(ctx context.Context, window time.Duration) (operate.Totals, error) {
	totals, err := s.Store.Totals(ctx, window)
	totals.Waits = []waiting.Tally{{Reason: s.wait().Reason, Turns: 3, Until: s.wait().Until}}
	return totals, err
}

// TestEveryPlaceShowsEveryWait shows a turn that waits for each of the reasons in the routes and pages that show
// waiting turns. A place that does not know a reason fails it.
func TestEveryPlaceShowsEveryWait(t *testing.T) {
	shown := &parkedStore{}
	h := newEnv(t, func(c *httpapi.Config) { shown.Store, c.Store = c.Store, shown })
	held := h.turn("clerk", "hello")
	held.write(turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnQueued, Backoff: time.Hour,
		Error: "later"}}, turnlog.Consequence{Message: turnkeeper.MessageRunning, Log: "deferred"})
	for _, row := range waiting.Rows {
		if row.Parked == "" {
			continue
		}
		for _, state := range []turnkeeper.TurnState{turnkeeper.TurnWaiting, turnkeeper.TurnQueued} {
			shown.current.Store(&waiting.Wait{Reason: row.Reason, Turn: held.id, State: state,
				Until: time.Now().Add(time.Hour),
				Agent: "desk", Model: "test/large", Count: 1})
			short := shown.wait().Short(func(time.Time) string { return "in" })
			reason := fmt.Sprintf(`"reason":%q`, row.Reason)
			for path, want := range map[string]string{
				"/v1/turns":                             reason,
				"/v1/messages":                          reason,
				"/v1/lanes":                             reason,
				fmt.Sprintf("/v1/turns/%d", held.id):    reason,
				fmt.Sprintf("/v1/messages/%d", held.id): reason,
				"/":                                     "3 for " + row.Parked,
				"/turns":                                short,
				"/inbox":                                short,
				"/lanes":                                short,
				fmt.Sprintf("/turns/%d", held.id):       "Waits for " + row.Parked,
				fmt.Sprintf("/inbox/%d", held.id): strings.SplitN(shown.wait().Long(func(time.Time) string {
					return "\x00"
				}), "\x00", 2)[0],
			} {
				if got := plain(string(h.ask("GET", path, "").body)); !strings.Contains(got, plain(want)) {
					t.Errorf("%s does not say %q of a %s turn", path, want, state)
				}
			}
			if state == turnkeeper.TurnQueued {
				continue // one state suffices, because each stream takes a poll to begin
			}
			if f := h.waitingEvent(turnkeeper.MessageID(held.id)); !strings.Contains(plain(f.raw), plain(reason)) {
				t.Errorf("the events of the message do not say %s: %s", reason, f.raw)
			}
		}
	}
}

// waitingEvent returns the first event message_waiting of a message.
func (h *env) waitingEvent(id turnkeeper.MessageID) frame {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	for f := range h.frames(ctx, id, "") {
		if f.kind == "message_waiting" {
			return f
		}
	}
	h.t.Fatal("the stream ended without the event message_waiting")
	return frame{}
}

// plain returns a text without spaces and upper case, in which JSON, pages and sentences differ.
func plain(text string) string { return strings.ToLower(strings.ReplaceAll(text, " ", "")) }
