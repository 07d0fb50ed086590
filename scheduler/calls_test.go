package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/scheduler"
)

func TestWhatBecomesOfALostCall(t *testing.T) {
	last := granting.MaxDetachedLosses - 1
	for name, c := range map[string]struct {
		failure granting.CallFailure
		effect  turnkeeper.Effect
		losses  int
		again   bool
	}{
		"none, its worker lost":             {granting.CallLost, turnkeeper.EffectNone, 0, true},
		"keyed, its worker lost":            {granting.CallLost, turnkeeper.EffectKeyed, 0, true},
		"keyed, a worker more than it may":  {granting.CallLost, turnkeeper.EffectKeyed, last, false},
		"once, its worker lost":             {granting.CallLost, turnkeeper.EffectOnce, 0, false},
		"of no known effect":                {granting.CallLost, "", 0, false},
		"none, past its time":               {granting.CallOverdue, turnkeeper.EffectNone, 0, false},
		"never begun, and nobody wants it":  {granting.CallUnclaimed, turnkeeper.EffectNone, 0, false},
		"once, never begun, its job gone":   {granting.CallJobMissing, turnkeeper.EffectOnce, 0, true},
		"keyed, never begun, often started": {granting.CallJobMissing, turnkeeper.EffectKeyed, last, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.calls = []granting.LostCall{{Name: "it", Failure: c.failure, Effect: c.effect, Losses: c.losses}}
				report := w.tick(t, w.scheduler())
				var again, ended []string
				if c.again {
					again = []string{"it"}
				} else {
					ended = []string{"it"}
				}
				if diff := cmp.Diff([][]string{again, ended}, [][]string{w.ranAgain, w.endedCalls}); diff != "" ||
					report.Calls != 1 {
					t.Errorf("%d calls; run again, ended (-want +got):\n%s", report.Calls, diff)
				}
			})
		})
	}
}

// TestManyLostCalls shows that only a tick that reached its limit is followed by another at
// once.
func TestManyLostCalls(t *testing.T) {
	for name, c := range map[string]struct {
		grants, calls int
		more          bool
	}{
		"one call":            {0, 1, false},
		"ninety-nine":         {0, 99, false},
		"a batch":             {0, 100, true},
		"a batch of turns":    {100, 1, true},
		"more turns, no call": {101, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.sit.FreeSlots, w.sit.Paused = 0, true
				for i := range c.grants {
					w.lost = append(w.lost, granting.LostGrant{TurnID: turnkeeper.TurnID(i + 1), WorkerID: "w"})
				}
				for i := range c.calls {
					w.calls = append(w.calls, granting.LostCall{Name: string(rune('A' + i)),
						Failure: granting.CallUnclaimed})
				}
				report := w.tick(t, w.scheduler())
				if report.More != c.more || report.Calls != c.calls {
					t.Errorf("more: %t, want %t; %d calls", report.More, c.more, report.Calls)
				}
			})
		})
	}
}

// TestWhatAFullBatchLeaves fills the batch of one kind of work, and has another kind follow
// in the same tick.
func TestWhatAFullBatchLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		lost, calls, schedules, messages int
		spawns                           int
		more, left                       bool
	}{
		"nothing":                 {},
		"one lost turn":           {lost: 1, left: true},
		"one call":                {calls: 1, left: true},
		"one schedule":            {schedules: 1, left: true},
		"sub-agents":              {spawns: 1},
		"many sub-agents":         {spawns: 99},
		"a batch of sub-agents":   {spawns: 100, more: true},
		"more sub-agents":         {spawns: 101, more: true},
		"one message":             {messages: 1},
		"many schedules":          {schedules: 99, left: true},
		"a batch of schedules":    {schedules: 100, more: true, left: true},
		"calls, and a schedule":   {calls: 100, schedules: 1, more: true, left: true},
		"calls, and sub-agents":   {calls: 100, spawns: 1, more: true, left: true},
		"calls, and a message":    {calls: 100, messages: 1, more: true, left: true},
		"calls, and a lost turn":  {calls: 100, lost: 1, more: true, left: true},
		"a batch of lost turns":   {lost: 100, more: true, left: true},
		"nearly so many of these": {lost: 99, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.sit.Spawns, w.spawns = c.spawns > 0, c.spawns
				for i := range c.lost {
					w.lost = append(w.lost, granting.LostGrant{
						TurnID: turnkeeper.TurnID(i + 1), MessageID: turnkeeper.MessageID(1000 + i),
						Lane: turnkeeper.Lane(string(rune(0x4e00 + i))), WorkerID: "w",
					})
				}
				for i := range c.calls {
					w.calls = append(w.calls, granting.LostCall{Name: string(rune('A' + i)),
						Failure: granting.CallUnclaimed})
				}
				for i := range c.schedules {
					w.schedules = append(w.schedules, granting.DueSchedule{Name: string(rune('A' + i)),
						Cron: "* * * * *", NextDue: w.now()})
				}
				w.messages = inLanes(c.messages)
				s := w.scheduler()
				s.MaxDispatches = 1000
				report := w.tick(t, s)
				if report.More != c.more || report.Left != c.left {
					t.Errorf("more %t, left %t; want %t, %t: %+v", report.More, report.Left, c.more, c.left, report)
				}
				if report.Requeued != c.lost || report.Granted != c.lost+c.messages {
					t.Errorf("%d brought back, %d granted", report.Requeued, report.Granted)
				}
			})
		})
	}
}

// A turn whose call or sub-agent has ended is granted in the same tick. A message then waits
// for the next free slot.
func TestATurnGoesOnInTheTickThatEndsItsCall(t *testing.T) {
	for name, end := range map[string]func(*testEnv){
		"a call": func(w *testEnv) {
			w.calls = []granting.LostCall{{Name: "it", Failure: granting.CallUnclaimed}}
		},
		"a sub-agent": func(w *testEnv) { w.sit.Spawns = true },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.wakes = []granting.Candidate{{TurnID: 7, MessageID: 7, Lane: "x"}}
				w.messages = inLanes(1)
				w.messages[0].Rank = w.now()
				w.sit.FreeSlots, w.sit.Waiting = 1, 1
				end(w)
				report := w.tick(t, w.scheduler())
				if len(w.granted) != 1 || len(w.granted[0]) != 1 || w.granted[0][0].TurnID != 7 || !report.Left {
					t.Errorf("granted are %+v: %+v", w.granted, report)
				}
			})
		})
	}
}

// While the clock is not trusted, a silent worker and a passed deadline have no effect.
func TestAHoldOffKeepsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.calls = []granting.LostCall{{Name: "it", Failure: granting.CallLost, Effect: turnkeeper.EffectOnce}}
		w.sit.HoldUntil, w.sit.HoldReason = time.Now().Add(time.Minute), "a step"
		s := scheduler.New(scheduler.Config{Store: w})
		if report := w.tick(t, s); report.Calls != 0 || len(w.calls) != 1 {
			t.Errorf("%+v", report)
		}
		w.sit.Paused = true // a pause stops only grants
		time.Sleep(2 * time.Minute)
		if report := w.tick(t, s); report.Calls != 1 {
			t.Errorf("%+v", report)
		}
	})
}

// A pause stops only grants. An untrusted clock stops only what depends on the clock. If
// leases may be lost, nothing is changed.
func TestWhenSubAgentsAreSeenTo(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*granting.Snapshot)
		timely []bool
	}{
		"always":               {func(*granting.Snapshot) {}, []bool{true}},
		"while it is paused":   {func(s *granting.Snapshot) { s.Paused = true }, []bool{true}},
		"not without a reason": {func(s *granting.Snapshot) { s.Spawns = false }, nil},
		"after a lost turn":    {func(s *granting.Snapshot) { s.Spawns, s.Lost = false, true }, []bool{true}},
		"after a step": {func(s *granting.Snapshot) {
			s.HoldUntil, s.HoldReason = time.Now().Add(time.Minute), "a step"
		}, []bool{false}},
		"on a new timeline": {func(s *granting.Snapshot) { s.SeenTimeline = "00000000" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.sit.Spawns = true
				w.sit.SeenTimeline, w.sit.LastTickAt = w.sit.Timeline, time.Now()
				c.change(&w.sit)
				if w.sit.Lost {
					w.lost = []granting.LostGrant{{TurnID: 1, Lane: "a"}}
				}
				w.tick(t, scheduler.New(scheduler.Config{Store: w}))
				if diff := cmp.Diff(c.timely, w.spawned); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
