package agentturn_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	askings "turnkeeper/asks"
	"turnkeeper/tools"
)

// ninety approves a call with other arguments than it was planned with.
var ninety = askings.Answer{Decision: askings.Approved, Edited: `{ "n" : 9e1 }`}

// TestARepeatOfWhatRan tests that a call repeats the one before it if it would run with the arguments with which that
// ran.
func TestARepeatOfWhatRan(t *testing.T) {
	for name, c := range map[string]struct {
		next string
		runs int
		asks int
	}{
		"as it ran":      {`pay {"n":90}`, 1, 1},
		"as it ran, too": {`pay {"n":90.0}`, 1, 1},
		"as planned":     {`pay {"n":900}`, 2, 2},
		"another":        {`pay {"n":91}`, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := once("pay").needsApproval()
				b := newBench(t, asks(`pay {"n":900}`), asks(c.next), says("Paid.")).with(pay)
				b.bounds.MaxRounds = 5
				b.waits()
				b.answer(ninety)
				if c.asks > 1 {
					b.waits()
					b.answer(yes)
				}
				b.succeeds("Paid.")
				if pay.runs.count() != c.runs || len(b.store.asked()) != c.asks {
					t.Errorf("%d runs with %q, %d asks", pay.runs.count(), pay.arguments(), len(b.store.asked()))
				}
				first := b.store.calls()[0]
				if first.Arguments != `{"n":900}` || first.AsRun() != `{"n":90}` || first.ArgsHash != tools.Hash("pay",
					`{"n":90}`) || pay.arguments()[0] != `{"n":90}` {
					t.Errorf("planned %s, ran with %s, the tool got %s", first.Arguments, first.AsRun(),
						pay.arguments()[0])
				}
			})
		})
	}
}

// TestARepeatWithHandles tests that handles count as their texts.
func TestARepeatWithHandles(t *testing.T) {
	for name, c := range map[string]struct {
		first, next string
		runs        int
	}{
		"the same handle":               {`taker {"a":"output:6"}`, `taker {"a":"output:6"}`, 1},
		"a handle, then its text":       {`taker {"a":"output:6"}`, `taker {"a":"small"}`, 1},
		"a text, then its handle":       {`taker {"a":"small"}`, `taker {"a":"output:6"}`, 1},
		"another handle of the text":    {`taker {"a":"output:6"}`, `taker {"a":"output:call_small_6"}`, 1},
		"the handle of another result":  {`taker {"a":"output:6"}`, `taker {"a":"output:1[0:4]"}`, 2},
		"what looks like the handle":    {`taker {"a":"output:6"}`, `taker {"a":"output::6"}`, 2},
		"the handle that it looks like": {`taker {"a":"output::6"}`, `taker {"a":"output:6"}`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, taker := handleBench(t, turnkeeper.EffectOnce, anyStrings,
					asks("text", "binary", "broken", "cut", "large", "small"), asks(c.first), asks(c.next),
					says("Done."))
				b.bounds.MaxRounds = 5
				b.run(t.Context())
				last := map[int]turnkeeper.CallState{1: turnkeeper.CallSkipped, 2: turnkeeper.CallSucceeded}[c.runs]
				if taker.runs.count() != c.runs || b.states()[7] != last {
					t.Errorf("%d runs: %q; calls %v", taker.runs.count(), taker.arguments(), b.states()[6:])
				}
			})
		})
	}
}

// TestAnEditedCallOfALostWorker tests what is recorded, asked and shown to the model about a call that a person
// changed, and whose worker was lost while it ran.
func TestAnEditedCallOfALostWorker(t *testing.T) {
	for name, settles := range map[string]bool{"unknown": false, "settled by a person": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pay := once("pay").needsApproval()
				b := newBench(t, asks(`pay {"n":900}`), says("Paid.")).with(pay)
				if settles {
					b.def.OnUnknown = "ask"
				}
				b.waits()
				b.answer(ninety)
				b.lose(agentturn.PointEffectDone, 1)
				if got := b.store.calls()[0]; got.State != turnkeeper.CallStarted || got.AsRun() != `{"n":90}` ||
					got.Arguments != `{"n":900}` {
					t.Errorf("after the loss: %s with %s, planned %s", got.State, got.AsRun(), got.Arguments)
				}
				if settles {
					b.waits()
					if ask := b.store.asked()[1]; ask.Kind != askings.KindSettle ||
						!strings.Contains(ask.Arguments, "9e1") {
						t.Errorf("the ask is %+v", ask)
					}
					b.answer(askings.Answer{Decision: askings.Answered, Answer: askings.DidNotHappen})
					b.succeeds("Paid.")
					if diff := cmp.Diff([]string{`{"n":90}`, `{"n":90}`}, pay.arguments()); diff != "" {
						t.Errorf("it ran with (-want +got):\n%s", diff)
					}
					return
				}
				b.run(t.Context())
				const note = "[A person changed the arguments of this call before it ran. It ran with: {\"n\":90}]"
				if got := results(b.requests()[1])[0]; !strings.HasPrefix(got, "outcome unknown: ") ||
					!strings.HasSuffix(got, "\n\n"+note) {
					t.Errorf("the model is shown %q", got)
				}
				if got := b.store.calls()[0]; got.State != turnkeeper.CallUnknown || got.AsRun() != `{"n":90}` {
					t.Errorf("%s with %s", got.State, got.AsRun())
				}
			})
		})
	}
}

// TestAnApprovedCallOfALostWorker tests that the model is shown nothing more about a call that ran as it had planned.
func TestAnApprovedCallOfALostWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("pay"), says("Paid.")).with(once("pay").needsApproval())
		b.waits()
		b.answer(askings.Answer{Decision: askings.Approved, Comment: "go ahead"})
		b.lose(agentturn.PointEffectDone, 1)
		b.run(t.Context())
		if got := results(b.requests()[1])[0]; got != agentturn.ShownUnknown {
			t.Errorf("the model is shown %q", got)
		}
	})
}
