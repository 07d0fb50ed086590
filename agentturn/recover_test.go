package agentturn_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/agentturn"
	askings "turnkeeper/asks"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// lose runs a dispatch whose worker is killed when the label is reached for the nth time.
func (b *bench) lose(label string, n int) {
	b.fault = at(label, n, runtime.Goexit)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.dispatch(b.t.Context())
		b.t.Error("the worker did not die")
	}()
	<-done
	b.fault = nil
}

func TestStartedCallsOfALostWorker(t *testing.T) {
	const unknown = "Tool results: 0 succeeded, 0 failed, 1 unknown.\n- send: unknown: it may or may not have happened"
	look := func(f func() (tools.Result, bool, error)) func(*tool) tools.Tool {
		return func(t *tool) tools.Tool { return &reconciler{t, f} }
	}
	plain := func(t *tool) tools.Tool { return t }
	tests := []struct {
		name   string
		effect turnkeeper.Effect
		wrap   func(*tool) tools.Tool
		state  turnkeeper.CallState
		shown  string // prefix of the result
		runs   int
		end    turnkeeper.TurnState
	}{
		{"once", turnkeeper.EffectOnce, plain, turnkeeper.CallUnknown, "outcome unknown: ", 1, turnkeeper.TurnDegraded},
		{"keyed", turnkeeper.EffectKeyed, plain, turnkeeper.CallSucceeded, "send ran", 2, turnkeeper.TurnSucceeded},
		{"once, found", turnkeeper.EffectOnce, look(func() (tools.Result, bool, error) {
			return tools.Result{Text: "booked"}, true, nil
		}),
			turnkeeper.CallSucceeded, "booked", 1, turnkeeper.TurnSucceeded},
		{"once, found as a failure", turnkeeper.EffectOnce, look(func() (tools.Result, bool, error) {
			return tools.Result{Text: "refused", IsError: true}, true, nil
		}),
			turnkeeper.CallFailed, "refused", 1, turnkeeper.TurnSucceeded},
		{"once, did not happen", turnkeeper.EffectOnce, look(func() (tools.Result, bool, error) {
			return tools.Result{}, false, nil
		}),
			turnkeeper.CallFailed, "the worker that ran this call was lost. It did not happen; not run again.", 1,
			turnkeeper.TurnSucceeded},
		{"once, cannot tell", turnkeeper.EffectOnce, look(func() (tools.Result, bool, error) {
			return tools.Result{}, false, errors.New("no log")
		}),
			turnkeeper.CallUnknown, "outcome unknown: ", 1, turnkeeper.TurnDegraded},
		{"once, does not come back", turnkeeper.EffectOnce, look(func() (tools.Result, bool, error) {
			time.Sleep(time.Hour)
			return tools.Result{Text: "booked"}, true, nil
		}), turnkeeper.CallUnknown, "outcome unknown: ", 1, turnkeeper.TurnDegraded},
		{"once, found in a body", turnkeeper.EffectOnce, look(func() (tools.Result, bool, error) {
			return tools.Result{Body: strings.NewReader("booked")}, true, nil
		}), turnkeeper.CallSucceeded, "booked", 1, turnkeeper.TurnSucceeded},
		{"once, panics", turnkeeper.EffectOnce, look(func() (tools.Result, bool, error) { panic("oops") }),
			turnkeeper.CallUnknown, "outcome unknown: ", 1, turnkeeper.TurnDegraded},
	}
	for i, test := range slices.Concat(tests, tests) {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				send := newTool("send", test.effect)
				b := newBench(t, asks("send"))
				if i >= len(tests) { // the model can read results by their handles
					b.tools = builtin.NewReaders()
				}
				b.with(test.wrap(send))
				b.lose(agentturn.PointEffectDone, 1)
				if b.states()[0] != turnkeeper.CallStarted {
					t.Fatalf("states %v", b.states())
				}
				b.script.Add(says("As far as I know."))
				got := b.run(t.Context())
				call := b.store.calls()[0]
				if call.State != test.state || !strings.HasPrefix(call.Shown, test.shown) {
					t.Errorf("call is %s, %q", call.State, call.Shown)
				}
				if send.runs.count() != test.runs {
					t.Errorf("%d runs, want %d", send.runs.count(), test.runs)
				}
				reply := "As far as I know."
				if test.end == turnkeeper.TurnDegraded {
					reply += "\n\n- send: unknown: it may or may not have happened"
				}
				if got.State != test.end || got.Reply != reply ||
					(got.StopReason == turnkeeper.StopWorkerLost) != (test.end == turnkeeper.TurnDegraded) {
					t.Errorf("%+v", got)
				}
				if requests := b.requests(); results(requests[1])[0] != call.Shown {
					t.Errorf("the model was told %q", results(requests[1]))
				}
				time.Sleep(2 * time.Hour) // until the tools that were left behind end
			})
		})
	}
	t.Run("a cap wins", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("send")).with(once("send"))
			b.bounds.MaxRounds = 1
			b.lose(agentturn.PointEffectDone, 1)
			got := b.run(t.Context())
			if got.StopReason != turnkeeper.StopMaxRounds || got.Reply != unknown {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("an error too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("send")).with(once("send"))
			b.lose(agentturn.PointChecked, 1)
			b.script.Then(fails("auth"))
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnDegraded || got.StopReason != turnkeeper.StopInferenceError ||
				got.Reply != unknown {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("the verdict is written before anything is built on it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("send", "look")).with(once("send"), read("look"))
			b.lose(agentturn.PointEffectDone, 1)
			b.script.Add(says("done"))
			b.run(t.Context())
			want := []string{"answer+start", "verdict", "answer+results+outcome"}
			if diff := cmp.Diff(want, b.store.writes); diff != "" {
				t.Error(diff)
			}
		})
	})
	t.Run("with no time left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("send", "look")).with(once("send"), read("look"))
			b.lose(agentturn.PointEffectDone, 1)
			b.wall = -1
			got := b.run(t.Context())
			if got.StopReason != turnkeeper.StopMaxDuration {
				t.Errorf("%+v", got)
			}
			if diff := cmp.Diff([]turnkeeper.CallState{"unknown", "cancelled"}, b.states()); diff != "" {
				t.Error(diff)
			}
		})
	})
}

// TestLateResultBeforeTheVerdict checks a late result of the lost worker that is written
// after the next worker read the record and before it writes its verdict.
func TestLateResultBeforeTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("send")).with(once("send"))
		b.lose(agentturn.PointEffectDone, 1)
		record, journal := b.store.dispatch()
		call := b.store.calls()[0]
		if err := journal.Late(t.Context(), turnlog.CallResult{
			Key: call.Key, Nonce: call.Nonce, State: turnkeeper.CallSucceeded, Shown: "sent after all", Ran: true,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.resume(t.Context(), record, journal); !errors.Is(err, turnkeeper.ErrJournalMoved) {
			t.Fatalf("error %v, want ErrJournalMoved", err)
		}
		b.script.Add(says("It was sent."))
		record, journal = b.store.load(journal.grant)
		got, err := b.resume(t.Context(), record, journal)
		b.check()
		if err != nil || got.State != turnkeeper.TurnSucceeded {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestLostInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, stream(300e6, "gone ", "with ", "the ", "worker"))
		b.lose(agentturn.PointStreamAfter, 2)
		if types := b.eventTypes(); types[len(types)-1] != "block_delta" {
			t.Fatalf("events %v", types)
		}
		b.script.Add(says("told again"))
		got := b.run(t.Context())
		if got.Reply != "told again" || b.streamed(1) != "told again" {
			t.Errorf("%+v; watchers have %q", got, b.streamed(1))
		}
	})
}

// TestToolTakenAway checks calls whose tool the next worker no longer has.
func TestToolTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("look", "send")).with(read("look"), once("send"))
		b.lose(agentturn.PointPlanAfter, 1)
		b.tools = b.tools[:1]
		b.script.Add(inferencetest.Answer(asking("", `look {"n":7}`)), says("done"))
		b.run(t.Context())
		if call := b.store.calls()[1]; call.State != turnkeeper.CallUnknown && !strings.HasPrefix(call.Shown,
			"tool not found: send") {
			t.Errorf("%s, %q", call.State, call.Shown)
		}
	})
}

// A lookUp is a tools.Reconciler that records the calls it is asked to reconcile.
type lookUp struct {
	*tool
	asked ledger
}

func (l *lookUp) Reconcile(_ context.Context, call tools.Call) (tools.Result, bool, error) {
	l.asked.add(call)
	return tools.Result{Text: "It was paid."}, true, nil
}

// TestACallIsLookedUpAsItRan checks that Reconcile gets the arguments with which the call ran, not those that the model
// wrote.
func TestACallIsLookedUpAsItRan(t *testing.T) {
	approved := func(pay *tool) { pay.needsApproval() }
	edited := askings.Answer{Decision: askings.Approved, Edited: `{"text":"five"}`}
	for name, c := range map[string]struct {
		change func(pay *tool) // nil: nothing
		asks   string
		answer askings.Answer // to what it waits for; zero: it does not wait
		want   string         // its arguments
	}{
		"as planned":       {nil, `pay {"text":"four"}`, askings.Answer{}, `{"text":"four"}`},
		"approved":         {approved, `pay {"text":"four"}`, yes, `{"text":"four"}`},
		"edited":           {approved, `pay {"text":"four"}`, edited, `{"text":"five"}`},
		"a handle":         {nil, withHandle, askings.Answer{}, `{"text":"seen"}`},
		"an edited handle": {approved, withHandle, edited, `{"text":"five"}`},
		"with input":       {func(pay *tool) { pay.asksFor(1) }, `pay {"text":"four"}`, seat(4), `{"text":"four"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := &lookUp{tool: payText()}
				if c.change != nil {
					c.change(pay.tool)
				}
				b := newBench(t, asks("page"), asks(c.asks), says("Paid.")).with(labelled("page", "seen",
					policy.Untrusted), pay)
				b.bounds.OutputHandles = true
				if c.answer.Decision != "" {
					b.waits()
					b.answer(c.answer)
				}
				b.lose(agentturn.PointEffectDone, 1)
				b.succeeds("Paid.")
				if len(pay.asked.calls) != 1 || b.states()[1] != turnkeeper.CallSucceeded {
					t.Fatalf("it was asked about %+v, and is %s", pay.asked.calls, b.states()[1])
				}
				ran, asked := pay.runs.calls[len(pay.runs.calls)-1], pay.asked.calls[0]
				if diff := cmp.Diff(ran, asked, cmpopts.IgnoreFields(tools.Call{}, "Outputs", "Progress", "Sample",
					"CheckDestination")); diff != "" {
					t.Errorf("it is asked about another call than ran (-ran +asked):\n%s", diff)
				}
				if string(asked.Arguments) != c.want || len(asked.Labels) == 0 {
					t.Errorf("it is asked about %s, with labels %v", asked.Arguments, asked.Labels)
				}
			})
		})
	}
}
