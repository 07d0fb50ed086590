package agentturn_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
)

// TestEventsOfAJobThatEndsWhileAStartCannotBeWritten checks that the end of a turn
// removes the events of a start that could not be written, and no others.
func TestEventsOfAJobThatEndsWhileAStartCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t, asks("fetcher", "send"))
		b.with(lasting("fetcher", turnkeeper.EffectNone, 8*time.Second), once("send"))
		b.wall = 30 * time.Second
		away := false
		b.before = func(e turnlog.Entry) error {
			for _, s := range e.Starts {
				away = away || s.Key == turnkeeper.CallKey{Round: 1, Ordinal: 2}
			}
			if away && e.Outcome == nil { // the database is unreachable until the turn's time is over
				time.Sleep(26 * time.Second)
				return context.DeadlineExceeded
			}
			return nil
		}
		got := b.run(t.Context())
		if diff := cmp.Diff([]turnkeeper.CallState{"succeeded", "cancelled"}, b.states()); diff != "" {
			t.Error(diff)
		}
		told := map[string]int{}
		for _, e := range b.store.events() {
			if e.Type == turnkeeper.EventToolResult {
				told[string(e.Data)]++
			}
		}
		if len(told) != 2 {
			t.Errorf("%+v: %d of 2 results were told of: %v, %v", got, len(told), told, b.eventTypes())
		}
	})
}

// TestWhatTakesLongIsShownWhenItBegins checks what watchers see while a model is silent, and while a read runs: that
// the turn runs, and that the call has started.
func TestWhatTakesLongIsShownWhenItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(res inference.Response) inferencetest.Step {
			return inferencetest.Func(func(context.Context, inference.Request,
				func(inference.Delta)) (inference.Response, error) {
				time.Sleep(10 * time.Second)
				return res, nil
			})
		}
		calls := inference.Response{Calls: []inference.Call{{ID: "a", Name: "look", Arguments: `{"n":1}`}}}
		b := newBench(t, slow(calls), slow(inference.Response{Text: "seen"})).with(lasting("look",
			turnkeeper.EffectNone, 4*time.Second))
		began := time.Now()
		after := map[turnkeeper.EventType]time.Duration{}
		b.before = func(e turnlog.Entry) error {
			for _, event := range e.Events {
				after[event.Type] = time.Since(began)
			}
			return nil
		}
		b.run(t.Context())
		for kind, want := range map[turnkeeper.EventType]time.Duration{
			turnkeeper.EventTurnStart: 0, turnkeeper.EventToolStarted: 10 * time.Second,
			turnkeeper.EventToolResult: 14 * time.Second,
		} {
			if got := after[kind]; got < want || got > want+time.Second {
				t.Errorf("%s came after %s, want about %s", kind, got, want)
			}
		}
	})
}
