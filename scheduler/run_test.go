package scheduler_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/granting"
	"turnkeeper/scheduler"
)

func seconds(ns ...float64) []time.Duration {
	var all []time.Duration
	for _, n := range ns {
		all = append(all, time.Duration(n*float64(time.Second)))
	}
	return all
}

func TestRunLooksAgain(t *testing.T) {
	cases := map[string]struct {
		set    func(*testEnv)
		config scheduler.Config
		rings  []time.Duration
		freed  []time.Duration // turns end
		for_   time.Duration
		want   []time.Duration
	}{
		"by the poll of 5 seconds": {for_: 11 * time.Second, want: seconds(0, 5, 10)},
		"by the configured poll": {for_: 3500 * time.Millisecond, config: scheduler.Config{PollInterval: time.Second},
			want: seconds(0, 1, 2, 3)},
		"by the operator's poll": {
			set:  func(w *testEnv) { w.sit.PollInterval = 2 * time.Second },
			for_: 5 * time.Second, config: scheduler.Config{PollInterval: time.Minute}, want: seconds(0, 2, 4),
		},
		"on the doorbell": {rings: seconds(1, 1.5), for_: 6 * time.Second, want: seconds(0, 1, 1.5)},
		"when something comes due": {
			set: func(w *testEnv) {
				w.nextDue = func(time.Time) (time.Duration, error) { return 2 * time.Second, nil }
			},
			for_: 5 * time.Second, want: seconds(0, 2.02, 4.04), // queried after nextDueDelay
		},
		"when something came due since it looked": {
			set: func(w *testEnv) {
				at := w.now().Add(10 * time.Millisecond)
				w.nextDue = func(then time.Time) (time.Duration, error) {
					if at.After(then) {
						return at.Sub(w.now()), nil
					}
					return time.Hour, nil
				}
			},
			for_: 4 * time.Second, want: seconds(0, 0.021),
		},
		"when a turn ended for which something waits": {
			set:   func(w *testEnv) { w.sit.Waiting = 1 },
			freed: seconds(1, 1.5), for_: 4 * time.Second, want: seconds(0, 1, 1.5),
		},
		"not when a turn ended and all is granted": {
			set:   func(w *testEnv) { w.sit.Waiting, w.messages = 1, inLanes(1) },
			freed: seconds(1), for_: 4 * time.Second, want: seconds(0),
		},
		"when a turn ended and there is more than is counted": {
			set: func(w *testEnv) {
				w.sit.Waiting, w.messages = granting.MaxWaiting, inLanes(granting.MaxWaiting)
			},
			config: scheduler.Config{MaxDispatches: 1000},
			freed:  seconds(1), for_: 4 * time.Second, want: seconds(0, 1),
		},
		"when a turn ended and an open one waits for its time": {
			set:   func(w *testEnv) { w.sit.FreeSlots, w.turns = 0, inLanes(1) },
			freed: seconds(1), for_: 4 * time.Second, want: seconds(0, 1),
		},
		"once for the turns that ended before it looked": {
			set:   func(w *testEnv) { w.sit.Waiting, w.messages = 1, inLanes(1) },
			freed: seconds(0.3), rings: seconds(0.5), for_: 4 * time.Second, want: seconds(0, 0.5),
		},
		"soon when it cannot know what is due, as no doorbell announces it": {
			set: func(w *testEnv) {
				w.nextDue = func(time.Time) (time.Duration, error) { return 0, errors.New("no database") }
			},
			for_: 2500 * time.Millisecond, config: scheduler.Config{PollInterval: time.Hour},
			want: seconds(0, 1.02, 2.04),
		},
		"soon after one that failed": {
			set:  func(w *testEnv) { w.fail = errors.New("no database") },
			for_: 2500 * time.Millisecond, want: seconds(0, 1, 2),
		},
		"soon after one that found another at work": {
			set:  func(w *testEnv) { w.locked = true },
			for_: 250 * time.Millisecond, want: seconds(0, 0.1, 0.2),
		},
		"each second while it holds off": {
			set: func(w *testEnv) {
				w.sit.HoldUntil, w.sit.HoldReason = w.now().Add(2500*time.Millisecond), "a step"
			},
			for_: 9 * time.Second, want: seconds(0, 1, 2, 3, 8),
		},
		"at once while there is more": {
			set: func(w *testEnv) { w.messages = inLanes(5) },
			// the last one looks for everything
			for_: time.Second, config: scheduler.Config{MaxDispatches: 2}, want: seconds(0, 0, 0, 0.25),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *testEnv) {
				if c.set != nil {
					c.set(w)
				}
				wake, freed := make(chan struct{}, 1), make(chan struct{}, 1)
				c.config.Wake, c.config.Freed = wake, freed
				for _, at := range c.rings {
					time.AfterFunc(at, func() { wake <- struct{}{} })
				}
				for _, at := range c.freed {
					time.AfterFunc(at, func() { freed <- struct{}{} })
				}
				w.runFor(t, c.for_, c.config)
				if diff := cmp.Diff(c.want, w.looks); diff != "" {
					t.Errorf("looked at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Doorbells ring all the time. A lost grant is found all the same, but most ticks do not look for it.
func TestRareWorkIsFoundWhileDoorbellsRing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		wake := make(chan struct{}, 1)
		for at := time.Duration(0); at < time.Second; at += 10 * time.Millisecond {
			time.AfterFunc(at, func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			})
		}
		lost := false
		w.looking = func(since time.Duration, s *state) {
			if since >= 505*time.Millisecond && !lost {
				lost, s.lost = true, []granting.LostGrant{{TurnID: 1, Lane: "a"}}
			}
			if since >= 800*time.Millisecond && len(s.requeued) != 1 {
				t.Errorf("after %s, the turns %v are reclaimed", since, s.requeued)
			}
		}
		w.runFor(t, 3*time.Second, scheduler.Config{Wake: wake})
		if full := len(w.looks) - w.partial; len(w.looks) < 90 || full < 4 || full > 7 {
			t.Errorf("%d of %d ticks looked for everything", full, len(w.looks))
		}
	})
}

// The longer it takes the store to look for everything, the more seldom ticks do, up to a bound.
func TestRunLooksForEverythingMoreSeldomIfThatTakesLong(t *testing.T) {
	for took, want := range map[time.Duration]int{time.Millisecond: 40, 10 * time.Millisecond: 10, time.Minute: 2} {
		inBubble(t, func(t *testing.T, w *testEnv) {
			w.sit.QueryTime = took
			wake := make(chan struct{}, 1)
			for at := time.Duration(0); at < 10*time.Second; at += 10 * time.Millisecond {
				time.AfterFunc(at, func() {
					select {
					case wake <- struct{}{}:
					default:
					}
				})
			}
			w.runFor(t, 9995*time.Millisecond, scheduler.Config{Wake: wake})
			if full := len(w.looks) - w.partial; len(w.looks) < 900 || full < want || full > want+1 {
				t.Errorf("looking takes %s: %d of %d ticks in 10 s looked for everything, want %d", took, full,
					len(w.looks), want)
			}
		})
	}
}

func TestRunNeverSpins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.nextDue = func(time.Time) (time.Duration, error) { return -time.Minute, nil }
		w.runFor(t, 100*time.Millisecond, scheduler.Config{})
		if n := len(w.looks); n < 2 || n > 101 {
			t.Errorf("looked %d times in 100 ms at something that is long due", n)
		}
	})
}

func TestRunEndsWhileItWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			scheduler.New(scheduler.Config{Store: w}).Run(ctx)
			close(ended)
		}()
		synctest.Wait()
		cancel()
		<-ended
		if got := time.Since(w.began); got != 0 {
			t.Errorf("ended %v after it was told to", got)
		}
	})
}

func TestMoreIsBoundedPerTick(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.messages = inLanes(5)
		w.runFor(t, time.Second, scheduler.Config{MaxDispatches: 2})
		var sizes []int
		for _, grants := range w.granted {
			sizes = append(sizes, len(grants))
		}
		if diff := cmp.Diff([]int{2, 2, 1}, sizes); diff != "" {
			t.Errorf("grants a tick (-want +got):\n%s", diff)
		}
	})
}

func TestFailedTickLeavesNothingAndIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.messages = inLanes(1)
		w.fail, w.failFor = errors.New("no database"), 1500*time.Millisecond
		w.runFor(t, 3*time.Second, scheduler.Config{})
		if len(w.granted) != 1 || len(w.granted[0]) != 1 {
			t.Errorf("granted %v, want the one message once", w.granted)
		}
	})
}

func TestBusySchedulerDoesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.locked = true
		w.messages, w.lost = inLanes(1), []granting.LostGrant{{TurnID: 1, WorkerID: "w"}}
		w.schedules = []granting.DueSchedule{{Name: "s", Cron: "* * * * *"}}
		report := w.tick(t, w.scheduler())
		if !report.Busy || w.notes+len(w.granted)+len(w.requeued)+len(w.slots)+len(w.holds) > 0 {
			t.Errorf("report %+v; did %+v", report, w.state)
		}
	})
}

func TestIdleTicksWriteLittle(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.runFor(t, 5*time.Minute+time.Second, scheduler.Config{PollInterval: time.Second})
		if w.notes < 4 || w.notes > 6 {
			t.Errorf("%d writes in five idle minutes, want one a minute", w.notes)
		}
		if len(w.granted) > 0 {
			t.Errorf("an idle scheduler granted %v", w.granted)
		}
	})
}
