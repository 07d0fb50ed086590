package scheduler_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/scheduler"
)

// of returns candidates of agents, each in a lane of its own.
func of(agents ...string) []granting.Candidate {
	ready := inLanes(len(agents))
	for i, agent := range agents {
		ready[i].Agent = agent
	}
	return ready
}

// grantedIn ticks once and returns the messages that were granted.
func (w *testEnv) grantedIn(t *testing.T) (ids []turnkeeper.MessageID) {
	t.Helper()
	w.tick(t, scheduler.New(scheduler.Config{Store: w}))
	for _, some := range w.granted {
		for _, c := range some {
			ids = append(ids, c.MessageID)
		}
	}
	return ids
}

// What a tick must grant, and no more, beside work that it must leave out.
func TestWhatIsPicked(t *testing.T) {
	down := []modelhealth.Health{{Model: "p/down", DownSince: time.Unix(1, 0)}}
	for name, c := range map[string]struct {
		set  func(w *testEnv)
		want []turnkeeper.MessageID
	}{
		"a lane's turn and message take no place of another lane": {func(w *testEnv) {
			w.turns, w.messages = inLanes(1), inLanes(2)
			w.turns[0].New, w.messages[0].MessageID, w.messages[1].MessageID = false, 3, 5
			w.sit.Queued, w.sit.FreeSlots = true, 2
		}, []turnkeeper.MessageID{1, 5}},
		"an agent with a healthy model": {func(w *testEnv) {
			w.messages, w.sit.Down, w.chains = of("a"), down,
				[]modelhealth.Chain{{Agent: "a", Models: []string{"p/down", "p/up"}}}
		}, []turnkeeper.MessageID{1}},
		"work behind that of an agent without one": {func(w *testEnv) {
			w.messages, w.sit.Down, w.chains = of("a", "a", "a", "b"), down,
				[]modelhealth.Chain{{Agent: "a", Models: []string{"p/down"}}}
			w.sit.FreeSlots = 1
			for i := range 3 {
				w.messages[i].MaxRunning = 9
			}
		}, []turnkeeper.MessageID{4}},
		"no more than there are slots while a model is down": {func(w *testEnv) {
			w.messages, w.sit.Down, w.sit.FreeSlots = of("a", "b", "c"), down, 1
		}, []turnkeeper.MessageID{1}},
		"others beside an agent that has its bound": {func(w *testEnv) {
			w.messages, w.sit.FreeSlots = of("a", "a", "a", "b", "c"), 3
			for i := range 3 {
				w.messages[i].MaxRunning = 1
			}
		}, []turnkeeper.MessageID{1, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				c.set(w)
				got := w.grantedIn(t)
				if len(got) != len(c.want) {
					t.Fatalf("granted %v, want %v", got, c.want)
				}
				for i, id := range c.want {
					if got[i] != id {
						t.Errorf("granted %v, want %v", got, c.want)
					}
				}
			})
		})
	}
}
