package scheduler_test

import (
	"testing"
	"time"

	"turnkeeper/internal/granting"
	"turnkeeper/scheduler"
)

// A drifting clock does not count as a step, even at far more than real drifts.
func TestADriftingClockIsNoStep(t *testing.T) {
	for name, drift := range map[string]float64{"fast": 0.01, "slow": -0.01, "very fast": 0.1, "very slow": -0.1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.drift = drift
				w.runFor(t, 6*time.Hour, scheduler.Config{})
				if len(w.holds) > 0 {
					t.Errorf("the scheduler held off: %q", w.holds)
				}
			})
		})
	}
}

// A step of a drifting clock is detected, once.
func TestAStepOfADriftingClockHoldsOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.drift = 0.02
		w.step, w.stepAfter = -5*time.Minute, time.Hour
		w.runFor(t, 2*time.Hour, scheduler.Config{})
		if len(w.holds) != 2 {
			t.Errorf("holds were written %d times, want begin and end: %q", len(w.holds), w.holds)
		}
	})
}

// No scheduler saw the step: all started after it, and the last recorded tick is older. A
// lease from the future reveals it.
func TestAStepBackIsSeenByTheNewestGrant(t *testing.T) {
	cases := map[string]struct {
		newest, heldFor time.Duration
		held            bool
	}{
		"a grant ahead":             {newest: 10 * time.Minute, held: true},
		"an adjusted clock":         {newest: time.Second},
		"a grant of the past":       {newest: -time.Minute},
		"the hold-off is known":     {newest: 10 * time.Minute, heldFor: time.Minute, held: true},
		"the hold-off is just over": {newest: 10 * time.Minute, heldFor: -time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.sit.NewestGrant = w.now().Add(c.newest)
				w.sit.LastTickAt = w.now().Add(-time.Hour)
				if c.heldFor != 0 {
					w.sit.HoldUntil, w.sit.HoldReason = w.now().Add(c.heldFor), "before"
				}
				w.lost = []granting.LostGrant{{TurnID: 1, WorkerID: "w"}}
				s := w.scheduler()
				if report := w.tick(t, s); (report.Held != "") != c.held || (len(w.requeued) == 0) != c.held {
					t.Errorf("held %q, requeued %v; want a hold-off: %v", report.Held, w.requeued, c.held)
				}
				if !c.held || c.heldFor != 0 {
					return
				}
				// The grant is still in the future, but does not count as another step.
				for range 60 {
					time.Sleep(5 * time.Second)
					w.tick(t, s)
				}
				if len(w.requeued) != 1 || len(w.holds) != 2 {
					t.Errorf("requeued %v, holds %q", w.requeued, w.holds)
				}
			})
		})
	}
}

// clockwork runs a scheduler with a five-minute schedule while the database's clock is set
// forward and back, and records the results.
func clockwork(t *testing.T, w *testEnv, steps map[time.Duration]time.Duration, for_ time.Duration) {
	t.Helper()
	s := w.scheduler()
	next := granting.DueSchedule{Agent: "a", Name: "s", Cron: "*/5 * * * *", TimeZone: "UTC",
		NextDue: w.now().Truncate(5 * time.Minute).Add(5 * time.Minute)}
	for since := time.Duration(0); since < for_; since += 5 * time.Second {
		if step, ok := steps[since]; ok {
			w.skew += step
		}
		if !w.now().Before(next.NextDue) {
			w.schedules = []granting.DueSchedule{next}
		}
		made := len(w.slots)
		w.tick(t, s)
		if len(w.slots) > made {
			next.NextDue, next.LastSlot = w.upcoming.NextDue, w.upcoming.Slot
		}
		time.Sleep(5 * time.Second)
	}
}

func TestStepsMakeNoBurstOfSlots(t *testing.T) {
	const m = time.Minute
	cases := map[string]struct {
		steps map[time.Duration]time.Duration
		least int // slots in three hours; a correct clock gives 35
	}{
		"none":                      {nil, 35},
		"five minutes forth":        {map[time.Duration]time.Duration{31 * m: 5 * m}, 34},
		"five minutes back":         {map[time.Duration]time.Duration{31 * m: -5 * m}, 34},
		"an hour forth":             {map[time.Duration]time.Duration{31 * m: 60 * m}, 34},
		"an hour back":              {map[time.Duration]time.Duration{31 * m: -60 * m}, 23},
		"an hour forth, soon back":  {map[time.Duration]time.Duration{31 * m: 60 * m, 32 * m: -60 * m}, 34},
		"an hour forth, later back": {map[time.Duration]time.Duration{31 * m: 60 * m, 61 * m: -60 * m}, 22},
		"an hour back, forth again": {map[time.Duration]time.Duration{31 * m: -60 * m, 61 * m: 60 * m}, 28},
		"to and fro, every ten min": {map[time.Duration]time.Duration{10 * m: 5 * m, 20 * m: -5 * m, 30 * m: 5 * m,
			40 * m: -5 * m, 50 * m: 60 * m, 60 * m: -60 * m}, 18},
		"a day forth":                  {map[time.Duration]time.Duration{31 * m: 24 * 60 * m}, 34},
		"two steps in one hold-off":    {map[time.Duration]time.Duration{31 * m: 5 * m, 33 * m: 5 * m}, 33},
		"an hour forth, twice, by ten": {map[time.Duration]time.Duration{31 * m: 60 * m, 41 * m: 60 * m}, 33},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				clockwork(t, w, c.steps, 3*time.Hour)
				if n := len(w.slotsAt); n > 36 || n < c.least {
					t.Errorf("%d slots in three hours, want %d to 36", n, c.least)
				}
				seen := map[time.Time]bool{}
				for i, d := range w.slots {
					if seen[d.Slot] {
						t.Errorf("the slot %v was made twice", d.Slot)
					}
					seen[d.Slot] = true
					// A delayed slot and the next one on time may be less than five minutes apart, but not three
					// slots.
					if i >= 2 && w.slotsAt[i]-w.slotsAt[i-2] < 5*time.Minute {
						t.Errorf("a burst: slots at %v, %v, %v", w.slotsAt[i-2], w.slotsAt[i-1], w.slotsAt[i])
					}
				}
			})
		})
	}
}
