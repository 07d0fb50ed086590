package jobs_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/scheduler"
)

// A turn whose grant used a slot of a dead worker waits for another worker. If the rest of its
// time is too short then, it gets a new grant once, instead of less time or an answer without a
// model call.
func TestATurnThatWaitedForItsWorkerHasItsWholeTime(t *testing.T) {
	for name, c := range map[string]struct {
		waited, before string
		dispatches     int
	}{
		"longer than its time":    {"100 s", "", 2},
		"most of its time":        {"80 s", "", 2},
		"most of its time, again": {"80 s", "late_worker", 1},
		"a little of its time":    {"40 s", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := s.enqueue("clerk", "", "hello")
			dead := s.start(kind{})
			if err := s.Beat(t.Context(), presence.Heartbeat{WorkerID: "dead", Slots: 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := scheduler.New(scheduler.Config{Store: s.dispatcher(dead)}).Tick(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, table := range []string{"turns", "leases"} {
				s.exec("update turnkeeper." + table + " set granted_at = granted_at - interval '" + c.waited +
					"', lease_until = lease_until - interval '" + c.waited + "'")
			}
			s.exec("update turnkeeper.turns set error_class = nullif($1::text, '')", c.before)
			s.start(kind{model: echo, scheduler: true})
			if reply := s.reply(id); reply.Outcome != turnkeeper.TurnSucceeded || reply.Body != "re: hello" {
				t.Errorf("it was answered %s: %q", reply.Outcome, reply.Body)
			}
			turn := s.view(id).Turn
			if turn.Losses != 0 || turn.Dispatches != c.dispatches {
				t.Errorf("%d dispatches, %d losses", turn.Dispatches, turn.Losses)
			}
		})
	}
}
