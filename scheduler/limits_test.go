package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/limittest"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/scheduler"
)

var errAway = errors.New("the database is away")

// passes reports whether at least so many milliseconds pass until something happens.
func passes(of func(*testing.T) time.Duration) func(*testing.T, int) bool {
	return func(t *testing.T, ms int) bool { return of(t) >= time.Duration(ms)*time.Millisecond }
}

// secondLook returns the time from the first tick of a scheduler to the next one, or to the next one that looks for
// everything.
func secondLook(t *testing.T, everything bool, set func(*testEnv), c scheduler.Config) (d time.Duration) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *testEnv) {
		if set(w); !everything {
			w.runFor(t, 1500*time.Millisecond, c)
			d = w.looks[1] - w.looks[0]
			return
		}
		wake := make(chan struct{})
		c.Wake = wake
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { // doorbells ring all the time
			for ctx.Err() == nil {
				select {
				case wake <- struct{}{}:
				case <-ctx.Done():
				}
				time.Sleep(time.Millisecond)
			}
		})
		w.looking = func(time.Duration, *state) {
			if len(w.full) == 2 {
				d = w.full[1] - w.full[0]
				cancel()
			}
		}
		c.Store = w
		scheduler.New(c).Run(ctx)
		group.Wait()
	})
	return d
}

// batch returns what a tick does of more work than one does.
func batch(set func(w *testEnv, n int), done func(*testEnv, scheduler.Report) int) func(*testing.T, int) bool {
	return func(t *testing.T, n int) (all bool) {
		t.Helper()
		inBubble(t, func(t *testing.T, w *testEnv) {
			set(w, n)
			report := w.tick(t, w.scheduler())
			all = done(w, report) == n
			if !all && !report.More {
				t.Errorf("a tick did not do all of %d, and the next one does not follow at once", n)
			}
		})
		return all
	}
}

// silence reports whether workers get new time after the database was away for so many milliseconds.
func silence(t *testing.T, ms int) (anew bool) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *testEnv) {
		s := w.scheduler()
		w.tick(t, s)
		w.fail = errAway
		_, _ = s.Tick(t.Context())
		time.Sleep(time.Duration(ms) * time.Millisecond)
		w.fail = nil
		w.tick(t, s)
		anew = len(w.silenceFrom) > 0
	})
	return anew
}

// TestLimits tries each limit, timeout and interval of the scheduler.
func TestLimits(t *testing.T) {
	limittest.Check(t, map[string]limittest.Row{
		"afterError": {At: 1000, Takes: passes(func(t *testing.T) time.Duration {
			return secondLook(t, false, func(w *testEnv) { w.fail = errAway }, scheduler.Config{})
		})},
		"afterBusy": {At: 100, Takes: passes(func(t *testing.T) time.Duration {
			return secondLook(t, false, func(w *testEnv) { w.locked = true }, scheduler.Config{})
		})},
		"holdPoll": {At: 1000, Takes: passes(func(t *testing.T) time.Duration {
			return secondLook(t, false, func(w *testEnv) {
				w.sit.HoldUntil, w.sit.HoldReason = w.now().Add(time.Hour), "a step"
			}, scheduler.Config{PollInterval: time.Minute})
		})},
		"nextDueDelay": {At: 20, Takes: passes(func(t *testing.T) (d time.Duration) {
			return secondLook(t, false, func(w *testEnv) {
				// a tick follows at least a millisecond later
				w.nextDue = func(time.Time) (time.Duration, error) { return time.Nanosecond, nil }
			}, scheduler.Config{}) - time.Millisecond
		})},
		"leastLookEvery": {At: 250, Takes: passes(func(t *testing.T) time.Duration {
			return secondLook(t, true, func(w *testEnv) {
				w.sit.QueryTime = 2500 * time.Microsecond
			}, scheduler.Config{})
		})},
		"lookShare": {At: 300, Takes: passes(func(t *testing.T) time.Duration { // a hundred times 3 ms
			return secondLook(t, true, func(w *testEnv) { w.sit.QueryTime = 3 * time.Millisecond }, scheduler.Config{})
		})},
		"mostLookEvery": {At: 5000, Takes: passes(func(t *testing.T) time.Duration {
			return secondLook(t, true, func(w *testEnv) { w.sit.QueryTime = time.Minute }, scheduler.Config{})
		})},
		"clockTolerance": {At: 2000, Takes: func(t *testing.T, ms int) (taken bool) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				s := w.scheduler()
				w.tick(t, s)
				w.skew = time.Duration(ms) * time.Millisecond
				taken = w.tick(t, s).Held == ""
			})
			return taken
		}},
		"minOutage":       {At: 2000, Takes: func(t *testing.T, ms int) bool { return !silence(t, ms) }},
		"recordInterval":  {At: 60_000, Least: true, Takes: recorded},
		"readBackTime":    {Test: "TestEachCallEndsWithTheScheduler"},
		"noteFailureTime": {At: 2000, Takes: passes(noting)},
		"failureLogPause": {At: 60_000, Takes: passes(logPause)},
		"lostBatch": {At: 100, Takes: batch(func(w *testEnv, n int) {
			for i := range n {
				w.lost = append(w.lost, granting.LostGrant{TurnID: turnkeeper.TurnID(i + 1), Lane: "a", Lapsed: true})
			}
		}, func(_ *testEnv, r scheduler.Report) int { return r.Requeued })},
		"callBatch": {At: 100, Takes: batch(func(w *testEnv, n int) {
			for i := range n {
				w.calls = append(w.calls, granting.LostCall{Name: fmt.Sprint(i), Failure: granting.CallOverdue})
			}
		}, func(_ *testEnv, r scheduler.Report) int { return r.Calls })},
		"slotBatch": {At: 100, Takes: batch(func(w *testEnv, n int) {
			for i := range n {
				w.schedules = append(w.schedules, granting.DueSchedule{Name: fmt.Sprint(i), Cron: "* * * * *",
					NextDue: w.now()})
			}
		}, func(_ *testEnv, r scheduler.Report) int { return r.Slots })},
		"askBatch": {At: 100, Takes: batch(func(w *testEnv, n int) { w.sit.Asks, w.expired = true, n },
			func(_ *testEnv, r scheduler.Report) int { return r.Asks })},
		"spawnBatch": {At: 99, Takes: func(t *testing.T, n int) (last bool) { // more may be left after 100
			inBubble(t, func(t *testing.T, w *testEnv) {
				w.sit.Spawns, w.spawns = true, n
				last = !w.tick(t, w.scheduler()).More
			})
			return last
		}},
		"maxFailedLanes": {At: 1000, Takes: probedBehind},
		"everyHour":      {None: "a bit of the cron library: see TestDecide"},
	})
}

// recorded reports whether an idle tick is recorded so many milliseconds after the last record.
func recorded(t *testing.T, ms int) (is bool) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *testEnv) {
		s := w.scheduler()
		w.tick(t, s)
		before := w.notes
		time.Sleep(time.Duration(ms) * time.Millisecond)
		w.tick(t, s)
		is = w.notes > before
	})
	return is
}

// A hangingStore does not answer that a failed tick is recorded.
type hangingStore struct {
	*testEnv
	took time.Duration
}

func (s *hangingStore) TickFailed(ctx context.Context, _ error) error {
	began := time.Now()
	<-ctx.Done()
	s.took = time.Since(began)
	return ctx.Err()
}

// noting returns how long a scheduler waits for the record that a tick failed.
func noting(t *testing.T) time.Duration {
	t.Helper()
	var s *hangingStore
	synctest.Test(t, func(t *testing.T) {
		s = &hangingStore{testEnv: newEnv()}
		s.fail = errAway
		ctx, cancel := context.WithTimeout(t.Context(), 2900*time.Millisecond) // before the next tick
		defer cancel()
		scheduler.New(scheduler.Config{Store: s}).Run(ctx)
	})
	return s.took
}

// logPause returns the time between two log lines about ticks that fail alike.
func logPause(t *testing.T) (d time.Duration) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *testEnv) {
		core, logs := observer.New(zap.WarnLevel)
		w.fail = errAway
		w.runFor(t, 90*time.Second, scheduler.Config{Log: zap.New(core)})
		all := logs.All()
		d = all[1].Time.Sub(all[0].Time)
	})
	return d
}

// probedBehind reports whether a message probes a model that is behind so many lanes less one that have failed it.
func probedBehind(t *testing.T, n int) (probed bool) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *testEnv) {
		h := modelhealth.Health{Model: "m", Due: true, DownSince: w.now()}
		w.sit.FreeSlots = 10 * n // an agent gets three quarters of the slots
		for i := range n + 1 {
			lane := turnkeeper.Lane(fmt.Sprint("lane ", i))
			w.messages = append(w.messages, granting.Candidate{New: true, MessageID: turnkeeper.MessageID(i + 1),
				Agent: "a", Lane: lane})
			if i < n {
				h.Failed = append(h.Failed, lane)
			}
		}
		w.sit.Down, w.chains = []modelhealth.Health{h}, []modelhealth.Chain{{Agent: "a", Models: []string{"m"}}}
		s := scheduler.New(scheduler.Config{Store: w, MaxDispatches: 1})
		w.tick(t, s)
		for _, granted := range w.granted {
			for _, c := range granted {
				probed = probed || len(c.Probes) > 0 && c.Lane == turnkeeper.Lane(fmt.Sprint("lane ", n))
			}
		}
	})
	return probed
}

// TestAFullBatchOfAnyKindAsksForMore does the most work of one kind that a tick does, and a little of each other kind.
func TestAFullBatchOfAnyKindAsksForMore(t *testing.T) {
	kinds := map[string]func(w *testEnv, n int){
		"lost turns": func(w *testEnv, n int) {
			w.lost = slices.Repeat([]granting.LostGrant{{TurnID: 1, Lane: "a"}}, n)
		},
		"lost calls": func(w *testEnv, n int) {
			w.calls = slices.Repeat([]granting.LostCall{{Name: "c", Failure: granting.CallOverdue}}, n)
		},
		"schedules": func(w *testEnv, n int) {
			w.schedules = slices.Repeat([]granting.DueSchedule{{Cron: "* * * * *"}}, n)
		},
		"asks":       func(w *testEnv, n int) { w.sit.Asks, w.expired = true, n },
		"sub-agents": func(w *testEnv, n int) { w.sit.Spawns, w.spawns = true, n },
		"grants":     func(w *testEnv, n int) { w.messages = inLanes(n) },
		"nothing":    func(*testEnv, int) {},
	}
	for full := range kinds {
		inBubble(t, func(t *testing.T, w *testEnv) {
			for kind, set := range kinds {
				if kind == full {
					set(w, 100)
				} else {
					set(w, 1)
				}
			}
			if got, want := w.tick(t, w.scheduler()).More, full != "nothing"; got != want {
				t.Errorf("%s: the next tick follows at once: %t", full, got)
			}
		})
	}
}

// A lossCounter counts the losses that a scheduler reports.
type lossCounter struct{ ticks, losses int }

func (o *lossCounter) Ticked(bool, time.Duration, error) { o.ticks++ }
func (o *lossCounter) WorkerLost(string, bool, int)      { o.losses++ }

// TestALossIsReportedOnce loses a turn in a tick that fails, in the next one, whose grants fail, and in none after
// that.
func TestALossIsReportedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		o := &lossCounter{}
		s := scheduler.New(scheduler.Config{Store: w, Observer: o})
		w.lost = []granting.LostGrant{{TurnID: 1, Lane: "a"}}
		w.sit.Asks, w.failing = true, errAway
		if _, err := s.Tick(t.Context()); err == nil || o.ticks != 1 || o.losses != 0 {
			t.Errorf("error %v, %d ticks, %d losses", err, o.ticks, o.losses)
		}
		for range 2 { // the second one has nothing to reclaim
			w.tick(t, s)
		}
		if w.failing = nil; o.losses != 1 {
			t.Errorf("%d losses are reported", o.losses)
		}
		if w.tick(t, s); o.losses != 1 || o.ticks != 4 {
			t.Errorf("%d losses are reported, %d ticks", o.losses, o.ticks)
		}
	})
}

// TestEachKindOfWorkCounts does each kind of work alone, in a tick soon after another: the tick is recorded and logged,
// and it heeds the turns that end afterwards. A number of the report without a row fails.
func TestEachKindOfWorkCounts(t *testing.T) {
	rows := map[string]struct {
		set  func(*testEnv)
		left bool // other work may wait for it
	}{
		"none":     {set: func(*testEnv) {}},
		"Requeued": {func(w *testEnv) { w.lost = []granting.LostGrant{{TurnID: 1, Lane: "a"}} }, true},
		"Closed": {func(w *testEnv) {
			w.lost = []granting.LostGrant{{TurnID: 1, Lane: "a", WorkerID: "w", Losses: 2}}
		}, true},
		"Calls":  {func(w *testEnv) { w.calls = []granting.LostCall{{Failure: granting.CallOverdue}} }, true},
		"Asks":   {func(w *testEnv) { w.sit.Asks, w.expired = true, 1 }, true},
		"Spawns": {set: func(w *testEnv) { w.sit.Spawns = true }},
		"Slots": {func(w *testEnv) {
			w.schedules = []granting.DueSchedule{{Cron: "* * * * *", NextDue: w.now()}}
		}, true},
		"Granted": {set: func(w *testEnv) { w.messages, w.sit.Waiting = inLanes(1), 1 }},
	}
	for field := range reflect.TypeFor[scheduler.Report]().Fields() {
		if _, ok := rows[field.Name]; !ok && field.IsExported() && field.Type.Kind() == reflect.Int {
			t.Errorf("no row makes %s", field.Name)
		}
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				core, logs := observer.New(zap.DebugLevel)
				s := scheduler.New(scheduler.Config{Store: w, Log: zap.New(core)})
				w.tick(t, s)
				time.Sleep(2 * time.Second)
				before := w.notes
				w.sit.FreeSlots = 1
				row.set(w)
				if name == "Requeued" {
					w.sit.FreeSlots = -1 // no slot is free for it
				}
				report := w.tick(t, s)
				for field, value := range reflect.ValueOf(report).Fields() {
					if is := field.Name == name; field.IsExported() && field.Type.Kind() == reflect.Int &&
						(value.Int() == 1) != is {
						t.Errorf("the report has %d %s", value.Int(), field.Name)
					}
				}
				does := name != "none"
				if (w.notes > before) != does || (logs.FilterMessage("scheduler tick").Len() > 0) != does ||
					report.Left != row.left {
					t.Errorf("recorded %d times, logged %d times, heeds turns that end: %t", w.notes-before,
						logs.FilterMessage("scheduler tick").Len(), report.Left)
				}
			})
		})
	}
}
