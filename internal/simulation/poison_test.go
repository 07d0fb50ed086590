package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/testrun"
)

const (
	sick  = "sick model: town/m"
	well  = "well model: town/m"
	wells = "well model: town/m\nlane: conversation"
)

// poisoned makes the model fail each request of one message.
func (w *town) poisoned(err *inference.Error) {
	w.answer = func(_ context.Context, _, body string) error {
		if body == poison {
			w.mu.Unlock()
			defer w.mu.Lock()
			return fails(err)
		}
		return nil
	}
}

// TestOneMessageTakesNoModelDown checks that a message whose requests always fail does not keep others from its model,
// and ends as its own fault if it may be that.
func TestOneMessageTakesNoModelDown(t *testing.T) {
	own, never := townFaults()
	for _, setup := range []struct {
		name           string
		workers, slots int
		well           string
	}{{"one worker", 1, 2, well}, {"three workers, many lanes", 3, 2, wells}} {
		for _, faults := range []map[string]*inference.Error{own, never} {
			for _, name := range testrun.Sample(slices.Sorted(maps.Keys(faults)), 2) {
				fault := faults[name]
				t.Run(setup.name+"/"+name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newTown(t, setup.workers, setup.slots, sick, setup.well)
						w.poisoned(fault)
						bad := w.send("sick", "", poison)
						time.Sleep(time.Second)
						for i := range 3 {
							w.wantAnswered(10*time.Second, w.send("well", fmt.Sprint("c", i), "hello"))
						}
						for range 130 { // over three hours, with others in between
							time.Sleep(time.Minute)
							w.wantAnswered(10*time.Second, w.send("well", "", "hello"))
							if _, closed := w.until(bad, time.Millisecond); closed {
								break
							}
						}
						w.wantOwnFault(bad, own[name] != nil)
					})
				})
			}
		}
	}
}

// wantOwnFault checks that a message has failed as its own fault, not before ten minutes, or that it still waits.
func (w *town) wantOwnFault(id turnkeeper.MessageID, failed bool) {
	w.t.Helper()
	m, _ := w.store.Message(id)
	if !failed {
		if m.State == turnkeeper.MessageFailed || m.Faults > 0 {
			w.t.Errorf("the message is %s", m.State)
		}
		return
	}
	reply, _ := w.store.ReplyTo(id)
	if m.State != turnkeeper.MessageFailed || reply.ErrorClass != "message" || m.Faults != 1 {
		w.t.Fatalf("the message is %s with %d faults and the reply %+v", m.State, m.Faults, reply)
	}
	if after := m.ClosedAt.Sub(m.AcceptedAt); after < 10*time.Minute {
		w.t.Errorf("it failed after %s", after)
	}
}

// TestAPoisonMessageAlone checks a message that always fails and that nobody else's request follows: the worker's own
// requests show that the model answers.
func TestAPoisonMessageAlone(t *testing.T) {
	own, _ := townFaults()
	for name, fault := range own {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown(t, 1, 1, sick, well)
				w.poisoned(fault)
				bad := w.send("sick", "", poison)
				w.until(bad, 5*time.Minute)
				// the one slot may be in use for an idle timeout
				w.wantAnswered(30*time.Second, w.send("well", "", "hello"))
				w.until(bad, 3*time.Hour)
				w.wantOwnFault(bad, true)
				if w.requests("town/m", "Reply with ok.") == 0 {
					t.Error("the worker made no request of its own")
				}
			})
		})
	}
}

// TestTheFailedMessageIsNotTheProbe checks that the check above finds a store that lets a failed message probe its
// model.
func TestTheFailedMessageIsNotTheProbe(t *testing.T) {
	own, _ := townFaults()
	for _, bug := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newTown(t, 1, 2, sick, well)
			if bug {
				w.store.Plant(t, memory.BugFailedProbes)
			}
			w.poisoned(own["500"])
			w.send("sick", "", poison)
			time.Sleep(5 * time.Minute)
			took, _ := w.until(w.send("well", "", "hello"), 10*time.Minute)
			if slow := took > 10*time.Second; slow != bug {
				t.Errorf("with the bug: %v; a healthy agent was answered after %s", bug, took)
			}
		})
	}
}

// TestAProviderThatFailsHalf checks that a provider which fails half of all requests at random fails no message.
func TestAProviderThatFailsHalf(t *testing.T) {
	own, never := townFaults()
	faults := slices.Concat(slices.Collect(maps.Values(own)), slices.Collect(maps.Values(never)))
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 3, 20, wells)
		numbers := random(1)
		w.answer = func(context.Context, string, string) error {
			if numbers.IntN(2) == 0 {
				return nil
			}
			fault := *faults[numbers.IntN(len(faults))]
			fault.Idle = false // its 20 s would only take time
			return &fault
		}
		var ids []turnkeeper.MessageID
		for i := range testrun.UnderRace(100, testrun.Count(300, 1000)) {
			ids = append(ids, w.send("well", fmt.Sprint("c", i%100), fmt.Sprint("hello ", i)))
		}
		w.wantAnswered(24*time.Hour, ids...)
	})
}

// TestTheProbesWorkerDies kills the worker after its own request and before the turn's, and at other points of the
// probe.
func TestTheProbesWorkerDies(t *testing.T) {
	own, _ := townFaults()
	for _, point := range []string{"model.probed", "model.before", "turn.start", "finish.before"} {
		t.Run(point, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown(t, 2, 2, sick, well)
				var fixed, armed atomic.Bool
				w.answer = func(_ context.Context, _, body string) error {
					if body == poison && !fixed.Load() {
						return fails(own["500"])
					}
					return nil
				}
				w.hook = func(_ int, label string) bool { return label == point && armed.CompareAndSwap(true, false) }
				bad := w.send("sick", "", poison)
				time.Sleep(3 * time.Second) // it has failed once
				armed.Store(true)
				time.Sleep(time.Minute)
				if armed.Load() {
					t.Fatal("no worker died")
				}
				w.wantAnswered(10*time.Second, w.send("well", "", "hello"))
				fixed.Store(true)
				w.wantAnswered(5*time.Minute, bad)
			})
		})
	}
}

// TestALongPauseTakesNoSlot checks that a provider which asks for a pause, or says nothing, neither holds up agents
// with another model nor agents with a fallback.
func TestALongPauseTakesNoSlot(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  inference.Error
		within time.Duration // of the first turn's one request
	}{
		"Retry-After 20": {inference.Error{Class: inference.ClassOverloaded, Status: 503, RetryAfter: 20 * time.Second},
			3 * time.Second},
		"a hanging one": {inference.Error{Class: inference.ClassTransport, ByRequest: true, Idle: true},
			23 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown(t, 1, 2, "slow model: town/slow", "both model: town/slow\nfallback_models: [town/m]", well)
				w.answer = func(_ context.Context, model, _ string) error {
					if model != "town/slow" {
						return nil
					}
					w.mu.Unlock()
					defer w.mu.Lock()
					return fails(&tc.fault)
				}
				slow := []turnkeeper.MessageID{w.send("slow", "", "one"), w.send("both", "", "two")}
				time.Sleep(100 * time.Millisecond)
				w.wantAnswered(tc.within, w.send("well", "", "hello"), slow[1])
				if n := w.requests("town/slow", "one") + w.requests("town/slow", "two"); n > 2 {
					t.Errorf("%d requests were made", n)
				}
			})
		})
	}
}

// TestOthersHearOfAFailureAtOnce checks that a model counts as down while the turn that found out asks its fallback.
func TestOthersHearOfAFailureAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 1, 4, "both model: town/slow\nfallback_models: [town/m]")
		w.answer = func(_ context.Context, model, _ string) error {
			if model == "town/slow" {
				return &inference.Error{Class: inference.ClassOverloaded, Status: 503, RetryAfter: time.Hour}
			}
			w.mu.Unlock()
			defer w.mu.Lock()
			time.Sleep(30 * time.Second)
			return nil
		}
		w.send("both", "", "one")
		time.Sleep(5 * time.Second)
		if models := w.store.Models(); len(models) != 1 || !models[0].Down() {
			t.Errorf("the models are %+v", models)
		}
	})
}
