package agentturn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	askings "turnkeeper/asks"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/tools"
)

const inputSchema = `{"type":"object","properties":{"seat":{"type":"integer"}},"required":["seat"]}`

// asksFor makes a tool ask for input as often as n says, and then return what it got.
func (t *tool) asksFor(n int) *tool {
	t.spec.AsksInput = true
	return t.does(func(_ context.Context, call tools.Call) (tools.Result, error) {
		in := call.Input
		switch {
		case in == nil && n > 0:
			return tools.Result{}, &tools.InputRequest{Question: "Which seat?", Schema: json.RawMessage(inputSchema),
				State: "state 1"}
		case in != nil && in.State != fmt.Sprintf("state %d", in.N):
			return tools.Result{Text: "it got the state " + in.State, IsError: true}, nil
		case in != nil && in.N < n && in.Answer != nil:
			return tools.Result{}, &tools.InputRequest{Question: "And which seat?",
				Schema: json.RawMessage(inputSchema), State: fmt.Sprintf("state %d", in.N+1)}
		case in == nil:
			return tools.Result{Text: "booked"}, nil
		}
		return tools.Result{Text: fmt.Sprintf("%s, denied %t", in.Answer, in.Denied), IsError: in.Answer == nil}, nil
	})
}

func seat(n int) askings.Answer {
	return askings.Answer{Decision: askings.Answered, Answer: fmt.Sprintf(`{"seat": %d}`, n)}
}

// A call waits for days for input, and goes on in the same start.
func TestACallWaitsForInput(t *testing.T) {
	for _, effect := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectKeyed, turnkeeper.EffectOnce} {
		t.Run(string(effect), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := newTool("book", effect).asksFor(2)
				b := newBench(t, asks("book"), says("Booked.")).with(book)
				b.waits()
				ask := b.store.asked()[0]
				if ask.Kind != askings.KindInput || ask.Tool != "book" || ask.Reason != "Which seat?" ||
					ask.Schema != inputSchema || ask.Used {
					t.Errorf("the ask is %+v", ask)
				}
				if got := b.states(); !slices.Equal(got, []turnkeeper.CallState{turnkeeper.CallStarted}) {
					t.Errorf("calls %v", got)
				}
				time.Sleep(48 * time.Hour)
				b.answer(seat(1))
				b.waits()
				if all := b.store.asked(); len(all) != 2 || !all[0].Used || all[1].N != 2 ||
					all[1].Reason != "And which seat?" {
					t.Errorf("the asks are %+v", all)
				}
				last := seat(2)
				last.Comment = "at the window"
				b.answer(last)
				b.succeeds("Booked.")
				want :=
					"[Comment of the person who gave the input of this call: at the window]\n\n{\"seat\":2}, denied false"
				if got := results(b.requests()[1]); got[0] != want || b.states()[0] != turnkeeper.CallSucceeded {
					t.Errorf("the model is shown %q, the call is %s", got, b.states()[0])
				}
				call := b.store.calls()[0]
				if call.Starts != 1 || book.runs.count() != 3 || len(b.store.outcomes()) != 3 {
					t.Errorf("%d starts, %d runs, %d outcomes", call.Starts, book.runs.count(), len(b.store.outcomes()))
				}
			})
		})
	}
}

// Tests that a tool learns that it gets no input, and the model why.
func TestACallGetsNoInput(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(*bench)
		shown  string
	}{
		"denied": {
			func(b *bench) { b.answer(askings.Answer{Decision: askings.Denied, Comment: "stay at home"}) },
			"[denied: a person declined to give the input that this call asked for. The tool then returned the following.]\n" +
				"Comment: stay at home\n\n, denied true",
		},
		"expired": {
			func(*bench) {},
			"[denied: nobody gave the input that this call asked for in time. The tool then returned the following.]\n\n, denied false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("book"), says("Not booked.")).with(once("book").asksFor(1))
				b.waits()
				c.answer(b)
				time.Sleep(askings.DefaultTimeout)
				b.store.expire()
				b.succeeds("Not booked.")
				if got := results(b.requests()[1]); got[0] != c.shown || b.states()[0] != turnkeeper.CallFailed {
					t.Errorf("the model is shown %q, the call is %s", got, b.states()[0])
				}
			})
		})
	}
}

// An answer that is invalid by the schema asks again. The number of asks of a call is bounded.
func TestInputIsBounded(t *testing.T) {
	t.Run("invalid answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			book := once("book").does(nil)
			book.spec.AsksInput = true
			book.does(func(_ context.Context, call tools.Call) (tools.Result, error) {
				if call.Input == nil {
					return tools.Result{}, &tools.InputRequest{Question: "Which seat?",
						Schema: json.RawMessage(inputSchema)}
				}
				return tools.Result{Text: fmt.Sprintf("%d %s", call.Input.N, call.Input.Answer)}, nil
			})
			b := newBench(t, asks("book"), says("Done.")).with(book)
			b.waits()
			for n := 1; n < tools.MaxInputs; n++ {
				b.answer(askings.Answer{Decision: askings.Answered, Answer: `{"seat":"none"}`})
				b.waits()
				if ask := b.store.asked()[n]; ask.N != n+1 || !strings.HasPrefix(ask.Reason,
					"The answer was invalid (") || !strings.HasSuffix(ask.Reason, "). Which seat?") {
					t.Errorf("the ask is %+v", ask)
				}
			}
			b.answer(askings.Answer{Decision: askings.Answered, Answer: `[]`})
			b.succeeds("Done.")
			want :=
				"[denied: nobody gave the input that this call asked for in time. The tool then returned the following.]\n\n3 "
			if got := results(b.requests()[1]); got[0] != want || book.runs.count() != 2 {
				t.Errorf("the model is shown %q, %d runs", got, book.runs.count())
			}
		})
	})
	t.Run("a tool that never stops", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("book"), says("Done.")).with(once("book").asksFor(100))
			b.waits()
			for n := range tools.MaxInputs - 1 {
				b.answer(seat(n))
				b.waits()
			}
			b.answer(seat(9))
			b.succeeds("Done.")
			if got := results(
				b.requests()[1]); got[0] != "tool error: 'book' asked for input more than 3 times, and did not finish" || b.states()[0] != turnkeeper.CallFailed {
				t.Errorf("the model is shown %q, the call is %s", got, b.states()[0])
			}
		})
	})
	t.Run("a tool that may not ask", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			book := once("book").asksFor(1)
			book.spec.AsksInput = false
			b := newBench(t, asks("book"), says("Done.")).with(book)
			b.succeeds("Done.")
			if got := results(
				b.requests()[1]); got[0] != "tool error: it asked for input, and nobody can be asked here: Which seat?" {
				t.Errorf("the model is shown %q", got)
			}
		})
	})
}

// A worker is killed at each point, before the input is asked for and after it was given. A call of effect once goes on
// at most once: if its worker is lost from then on, its outcome is unknown. Others run again with the same input.
func TestAKillAroundInput(t *testing.T) {
	for _, effect := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectKeyed, turnkeeper.EffectOnce} {
		for _, label := range agentturn.FaultPoints() {
			t.Run(string(effect)+" "+label, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { killAroundInput(t, effect, label) })
			})
		}
	}
}

func killAroundInput(t *testing.T, effect turnkeeper.Effect, label string) {
	book := newTool("book", effect).asksFor(1)
	b := newBench(t, asks("book"), says("Booked."), says("Booked.")).with(book)
	die := func() {
		b.fault = &trap{label: label, n: 1, f: func() { runtime.Goexit() }}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = b.dispatch(t.Context())
		}()
		<-done
		b.fault = nil
	}
	die()
	if len(b.store.rounds()) == 0 { // the model is asked again
		b.script = inferencetest.NewScript(asks("book"), says("Booked."), says("Booked."))
		b.models["main/model"] = b.script
	}
	if !b.store.turn().State.Terminal() && b.store.turn().State != turnkeeper.TurnWaiting {
		if o := b.run(t.Context()); o.State != turnkeeper.TurnWaiting &&
			(o.State != turnkeeper.TurnDegraded || b.states()[0] != turnkeeper.CallUnknown) {
			t.Fatalf("the turn is %s, the call %s", o.State, b.states()[0])
		}
	}
	if b.store.turn().State.Terminal() { // the worker was lost in the first run
		return
	}
	b.answer(seat(1))
	die()
	if !b.store.turn().State.Terminal() {
		b.run(t.Context())
	}
	b.check()
	went := 0
	for _, call := range book.runs.calls {
		if call.Input != nil {
			went++
		}
	}
	call := b.store.calls()[0]
	switch {
	case effect == turnkeeper.EffectOnce && (went > 1 || call.Starts != 1 || call.State != turnkeeper.CallUnknown &&
		(went != 1 || call.State != turnkeeper.CallSucceeded)),
		effect != turnkeeper.EffectOnce && (went == 0 || call.State != turnkeeper.CallSucceeded),
		len(b.store.asked()) != 1:
		t.Errorf("it went on %d times in %d starts, the call is %s, %d asks", went, call.Starts, call.State,
			len(b.store.asked()))
	}
}

// A cancelled turn withdraws the ask. What the call did before it asked is not known.
func TestATurnIsCancelledWhileACallWaitsForInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("book"), says("Booked.")).with(once("book").asksFor(1))
		b.waits()
		ctx, cancel := context.WithCancelCause(t.Context())
		b.answer(seat(1))
		b.fault = &trap{label: agentturn.PointStartBefore, n: 1, f: func() { cancel(agentturn.ErrCancelled) }}
		if o := b.run(ctx); o.State != turnkeeper.TurnCancelled || b.states()[0] != turnkeeper.CallUnknown {
			t.Errorf("the turn is %s, the call %s", o.State, b.states()[0])
		}
	})
}

// TestInputComesWithTooLittleTime checks that a call goes on with its input only if the lease outlasts a run of it,
// also after the write that uses the input.
func TestInputComesWithTooLittleTime(t *testing.T) {
	const notUsed = "not finished: the turn was stopped before the call went on with the input that it had asked for."
	for name, c := range map[string]struct {
		lease time.Duration // a minute for the tool, 30 s of margin, and the rest
		write time.Duration // how long the write takes
		state turnkeeper.CallState
		shown string // prefix of the result
		used  bool
	}{
		"just enough":          {90*time.Second + 1, 0, turnkeeper.CallSucceeded, `{"seat":1}`, true},
		"enough to write":      {100 * time.Second, 10*time.Second - 1, turnkeeper.CallSucceeded, `{"seat":1}`, true},
		"too little":           {90 * time.Second, 0, turnkeeper.CallUnknown, "outcome unknown: ", false},
		"used up by the write": {100 * time.Second, 10 * time.Second, turnkeeper.CallFailed, notUsed, true},
	} {
		for _, effect := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectKeyed,
			turnkeeper.EffectOnce} {
			t.Run(name+", "+string(effect), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					book := newTool("book", effect).asksFor(1)
					b := newBench(t, asks("book"), says("Done.")).with(book)
					b.waits()
					b.answer(seat(1))
					b.lease, b.fault = c.lease, at(agentturn.PointStartAfter, 1, func() { time.Sleep(c.write) })
					b.run(t.Context())
					call, runs := b.store.calls()[0], 1
					if c.state == turnkeeper.CallSucceeded {
						runs = 2
					}
					if call.State != c.state || !strings.HasPrefix(call.Shown, c.shown) || book.runs.count() != runs ||
						b.store.asked()[0].Used != c.used {
						t.Errorf("the call is %s, %q, after %d runs; its input is used: %t", call.State, call.Shown,
							book.runs.count(), b.store.asked()[0].Used)
					}
				})
			})
		}
	}
}

// A worker is lost after the call went on. A person says that it did not happen, and it goes on again with the same
// input.
func TestAPersonSettlesACallThatGotItsInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := once("book").asksFor(1)
		b := newBench(t, asks("book"), says("Booked.")).with(book)
		b.def.OnUnknown = "ask"
		b.waits()
		b.answer(seat(4))
		b.fault = &trap{label: agentturn.PointEffectDone, n: 1, f: func() { runtime.Goexit() }}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = b.dispatch(t.Context())
		}()
		<-done
		b.fault = nil
		b.waits()
		if all := b.store.asked(); len(all) != 2 || all[1].Kind != askings.KindSettle {
			t.Fatalf("the asks are %+v", all)
		}
		b.answer(askings.Answer{Decision: askings.Answered, Answer: askings.DidNotHappen})
		b.succeeds("Booked.")
		if got := results(b.requests()[1]); got[0] != `{"seat":4}, denied false` || book.runs.count() != 3 ||
			b.store.calls()[0].Starts != 2 {
			t.Errorf("the model is shown %q after %d runs", got, book.runs.count())
		}
	})
}
