package jobs_test

import (
	"testing"
	"time"

	"turnkeeper/internal/presence"
	"turnkeeper/scheduler"
)

// TestEndHold changes the database's timeline. Nothing is granted until an operator ends the hold,
// whether or not a tick has noticed the new timeline before.
func TestEndHold(t *testing.T) {
	s := newSite(t)
	if err := s.Beat(t.Context(), presence.Heartbeat{WorkerID: "me", Slots: 10, TakeoverAfter: time.Hour}); err != nil {
		t.Fatal(err)
	}
	ticks := scheduler.New(scheduler.Config{Store: s.dispatcher(s.start(kind{}))})
	for _, noticed := range []bool{true, false} {
		s.exec("update turnkeeper.settings set timeline = 'FFFFFFFF'")
		s.enqueue("desk", time.Now().String(), "x")
		if noticed {
			for range 2 {
				if report, err := ticks.Tick(t.Context()); err != nil || report.Granted != 0 || report.Held == "" {
					t.Fatalf("on a new timeline: %+v, %v", report, err)
				}
			}
		}
		if err := s.EndHold(t.Context()); err != nil {
			t.Fatal(err)
		}
		if report, err := ticks.Tick(t.Context()); err != nil || report.Granted != 1 || report.Held != "" {
			t.Errorf("after the end of the hold, which was noticed (%t): %+v, %v", noticed, report, err)
		}
	}
}
