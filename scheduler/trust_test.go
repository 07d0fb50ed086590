package scheduler_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/granting"
	"turnkeeper/scheduler"
)

// lease is the default lease, which is how long a hold-off lasts.
const lease = 240 * time.Second

func TestClockStepsHoldOff(t *testing.T) {
	cases := map[string]struct {
		step time.Duration
		held bool
	}{
		"five minutes forth": {300 * time.Second, true},
		"five minutes back":  {-300 * time.Second, true},
		"an hour forth":      {time.Hour, true},
		"an hour back":       {-time.Hour, true},
		"a second forth":     {time.Second, false},
		"a second back":      {-time.Second, false},
		"two seconds forth":  {2 * time.Second, false},
		"two seconds back":   {-2 * time.Second, false},
		"a bit more forth":   {2*time.Second + time.Millisecond, true},
		"a bit more back":    {-2*time.Second - time.Millisecond, true},
		"none":               {0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				s := w.scheduler()
				w.tick(t, s)
				time.Sleep(5 * time.Second)
				w.skew = c.step
				w.lost = []granting.LostGrant{{TurnID: 1, Lane: "x", WorkerID: "w", Lapsed: true}}
				w.schedules = []granting.DueSchedule{{Name: "s", Cron: "* * * * *", NextDue: w.now().Add(-time.Minute)}}
				w.messages = inLanes(1)
				report := w.tick(t, s)
				if (report.Held != "") != c.held || (len(w.requeued) == 0) != c.held || (len(w.slots) == 0) != c.held {
					t.Fatalf("held %q; requeued %v, slots %d; want a hold-off: %v", report.Held, w.requeued,
						len(w.slots), c.held)
				}
				if report.Granted == 0 {
					t.Error("free lanes were not granted, though the leases can be trusted")
				}
				if !c.held {
					return
				}
				for time.Since(w.began) < 5*time.Second+lease-time.Second {
					time.Sleep(5 * time.Second)
					if w.tick(t, s); len(w.requeued) > 0 && time.Since(w.began) < 5*time.Second+lease {
						t.Fatalf("brought back %v after the step", time.Since(w.began)-5*time.Second)
					}
				}
				time.Sleep(10 * time.Second)
				if report := w.tick(t, s); report.Held != "" || len(w.requeued) != 1 || len(w.slots) != 1 {
					t.Errorf("after the hold-off: held %q, requeued %v, slots %v", report.Held,
						w.requeued, len(w.slots))
				}
				if len(w.holds) != 2 {
					t.Errorf("holds were written %d times, want begin and end: %q", len(w.holds), w.holds)
				}
			})
		})
	}
}

// TestAStepThatAnotherDidNotSee lets a new scheduler tick after a step and record its tick.
// The scheduler that ran before still detects the step.
func TestAStepThatAnotherDidNotSee(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		old := w.scheduler()
		w.tick(t, old)
		time.Sleep(5 * time.Second)
		w.skew = 5 * time.Minute
		if report := w.tick(t, w.scheduler()); report.Held != "" {
			t.Fatalf("the new scheduler holds off: %s", report.Held)
		}
		w.sit.LastTickAt = w.now()
		time.Sleep(time.Second)
		if report := w.tick(t, old); !strings.Contains(report.Held, "5m") {
			t.Errorf("the old scheduler holds off for %q", report.Held)
		}
	})
}

// TestAnUnknownTimeline covers a server that does not report its timeline, which is not a
// new one.
func TestAnUnknownTimeline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		s := w.scheduler()
		w.tick(t, s)
		w.sit.Timeline = ""
		if report := w.tick(t, s); report.Held != "" {
			t.Errorf("holds off: %s", report.Held)
		}
	})
}

// TestSmallStepsPastABusyScheduler moves the clock by two seconds between ticks that find
// the lock held: neither a step nor their sum counts.
func TestSmallStepsPastABusyScheduler(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		s := w.scheduler()
		w.locked = true
		for range 5 {
			w.tick(t, s)
			time.Sleep(5 * time.Second)
			w.skew += 2 * time.Second
		}
		w.locked = false
		if report := w.tick(t, s); report.Held != "" {
			t.Errorf("holds off: %s", report.Held)
		}
	})
}

// A scheduler that has always found the lock held has watched the clock too.
func TestAStepIsSeenPastABusyScheduler(t *testing.T) {
	for _, stepsBefore := range []string{"its own tick", "another busy look"} {
		t.Run(stepsBefore, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				s := w.scheduler()
				w.locked = true
				w.tick(t, s)
				time.Sleep(5 * time.Second)
				w.tick(t, s)
				w.skew = 5 * time.Minute
				if stepsBefore == "another busy look" {
					w.tick(t, s)
					time.Sleep(5 * time.Second)
				}
				w.locked = false
				w.lost = []granting.LostGrant{{TurnID: 1, Lane: "x", WorkerID: "w", Lapsed: true}}
				if report := w.tick(t, s); !strings.Contains(report.Held, "5m") || len(w.requeued) > 0 {
					t.Errorf("held %q, requeued %v", report.Held, w.requeued)
				}
			})
		})
	}
}

func TestStepThereAndBackHoldsOffUntilTheSecondIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		s := w.scheduler()
		w.tick(t, s)
		w.skew = time.Hour
		w.tick(t, s)
		time.Sleep(100 * time.Second)
		w.skew = 0
		if report := w.tick(t, s); !strings.Contains(report.Held, "-1h") {
			t.Errorf("held %q, want the step back", report.Held)
		}
		if left := w.sit.HoldUntil.Sub(w.now()); left != lease {
			t.Errorf("holds off for %v more, want %v from the last step", left, lease)
		}
	})
}

// A new scheduler knows the time of the last recorded tick.
func TestStepBackIsSeenAcrossARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.tick(t, w.scheduler())
		w.skew = -10 * time.Minute
		if report := w.tick(t, w.scheduler()); report.Held == "" {
			t.Error("the new scheduler does not hold off")
		}
	})
}

func TestNewTimelineGrantsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		s := w.scheduler()
		w.tick(t, s)
		w.sit.Timeline = "00000002"
		w.messages = inLanes(1)
		w.lost = []granting.LostGrant{{TurnID: 1, WorkerID: "w"}}
		if report := w.tick(t, s); report.Held == "" || len(w.granted)+len(w.requeued) > 0 {
			t.Fatalf("held %q, granted %v, requeued %v", report.Held, w.granted, w.requeued)
		}
		// A step of the clock meanwhile does not make the leases trusted again.
		time.Sleep(100 * time.Second)
		w.skew = time.Hour
		w.tick(t, s)
		time.Sleep(200 * time.Second)
		if w.tick(t, s); len(w.granted) > 0 {
			t.Fatal("granted while leases are not known")
		}
		// Another process also holds off.
		if w.tick(t, w.scheduler()); len(w.granted) > 0 {
			t.Fatal("another scheduler granted while leases are not known")
		}
		time.Sleep(41 * time.Second)
		if report := w.tick(t, s); report.Held != "" || len(w.granted) != 1 || len(w.requeued) != 1 {
			t.Errorf("after the hold-off: held %q, granted %v, requeued %v", report.Held, w.granted, w.requeued)
		}
	})
}

func TestSlowAnswerIsNoStep(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		s := w.scheduler()
		for _, stall := range []time.Duration{0, 20 * time.Second, 0, 3 * time.Second, 0, 0} {
			w.stall = stall
			if report := w.tick(t, s); report.Held != "" {
				t.Fatalf("holds off after an answer that took %v: %s", stall, report.Held)
			}
			time.Sleep(time.Second)
		}
		w.skew = time.Minute
		if report := w.tick(t, s); report.Held == "" {
			t.Error("a step after slow answers is not seen")
		}
	})
}

// The silence of workers counts anew after an outage of the database, for this scheduler or
// for all.
func TestSilenceCountsFromTheDatabasesReturn(t *testing.T) {
	for name, c := range map[string]struct {
		away      time.Duration
		restarted bool
		busy      bool // another scheduler holds the lock when the database is back
		want      int
	}{
		"never away":           {},
		"away for a moment":    {away: time.Second},
		"away":                 {away: 20 * time.Second, want: 1},
		"another server":       {restarted: true, want: 1},
		"another looked first": {away: 20 * time.Second, busy: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				s := w.scheduler()
				w.tick(t, s)
				if c.away > 0 {
					w.fail = errors.New("away")
					if _, err := s.Tick(t.Context()); err == nil {
						t.Fatal("the tick did not fail")
					}
					time.Sleep(c.away)
					w.fail = nil
				}
				w.sit.Restarted = c.restarted
				if w.locked = c.busy; c.busy {
					w.tick(t, s)
					w.locked = false
				}
				for range 2 {
					w.tick(t, s)
					time.Sleep(5 * time.Second)
				}
				if len(w.silenceFrom) != c.want {
					t.Errorf("silence was counted anew %d times, want %d", len(w.silenceFrom), c.want)
				}
			})
		})
	}
}

func TestHoldOffLastsOneLeaseOfTheConfig(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		s := scheduler.New(scheduler.Config{Store: w, LeaseTTL: 7 * time.Second})
		w.tick(t, s)
		w.skew = time.Minute
		w.tick(t, s)
		if left := w.sit.HoldUntil.Sub(w.now()); left != 7*time.Second {
			t.Errorf("holds off for %v", left)
		}
	})
}
