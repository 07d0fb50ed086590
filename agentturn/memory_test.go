package agentturn_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// TestResultsAreCountedUntilTheyAreRecorded checks that results hold memory of the budget until the
// journal has them, and that the reads of a turn do not wait for each other.
func TestResultsAreCountedUntilTheyAreRecorded(t *testing.T) {
	const text = 1 << 20
	big := tools.Func(tools.Spec{Name: "big", Effect: turnkeeper.EffectNone},
		func(context.Context, struct{}) (string, error) {
			return strings.Repeat("x", text), nil
		})
	read := tools.Func(tools.Spec{Name: "read", Effect: turnkeeper.EffectNone}, func(ctx context.Context,
		_ struct{}) (string, error) {
		return "ok", membudget.Of(ctx).Grow(ctx, text) // all of the budget
	})
	b := newBench(t,
		inferencetest.Answer(inference.Response{Calls: []inference.Call{{ID: "a", Name: "big"}, {ID: "b", Name: "read"},
			{ID: "c", Name: "big"}, {ID: "d", Name: "read"}}}),
		inferencetest.Answer(inference.Response{Text: "done"})).with(big, read)
	memory := membudget.New(0, text)
	recorded := false
	b.before = func(e turnlog.Entry) error {
		held := memory.Use().Held
		if recorded && held != 0 {
			t.Errorf("%d bytes are held after the results were recorded", held)
		}
		if len(e.Results) > 0 {
			if recorded = true; held != 2*2*text {
				t.Errorf("%d bytes are held before the results are recorded", held)
			}
		}
		return nil
	}
	record, journal := b.store.dispatch()
	journal.before = b.before
	runner := b.runnerWith(func(c *agentturn.Config) { c.ResultMemory = memory })
	if _, err := runner.Run(t.Context(), agentturn.Assignment{Record: record, Definition: b.def}, journal); err != nil {
		t.Fatal(err)
	}
	if use := memory.Use(); use != (membudget.Use{}) || !recorded {
		t.Errorf("%+v, recorded: %t", use, recorded)
	}
}

// TestEachWayGivesItsMemoryBack checks, for each way in which a tool is run or asked, that its result holds memory of
// the budget, and that nothing is held any more once the result is recorded, nor between dispatches.
func TestEachWayGivesItsMemoryBack(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	give := func(context.Context, tools.Call) (tools.Result, error) { return tools.Result{Text: big}, nil }
	find := func() (tools.Result, bool, error) { return tools.Result{Text: big}, true, nil }
	later := func(context.Context, tools.Call) (tools.Result, error) {
		time.Sleep(20 * time.Second)
		return tools.Result{Text: big}, nil
	}
	within := once("way").does(give)
	within.spec.Transactional = true
	asksFirst := once("way").does(func(_ context.Context, call tools.Call) (tools.Result, error) {
		if call.Input == nil {
			return tools.Result{}, &tools.InputRequest{Question: "Which seat?", Schema: json.RawMessage(inputSchema)}
		}
		return tools.Result{Text: big}, nil
	})
	asksFirst.spec.AsksInput = true
	loseRun := func(b *bench) { b.lose(agentturn.PointEffectDone, 1) }
	wait := []inferencetest.Step{asks("wait_for_tool_output {}")}
	for name, c := range map[string]struct {
		way   tools.Tool
		more  []inferencetest.Step // before the last call
		until func(b *bench)       // the dispatches before the last one
	}{
		"run":               {way: once("way").does(give)},
		"read":              {way: read("way").does(give)},
		"in the background": {way: once("way").does(later).withBackground(), more: wait},
		"again in the background": {way: newTool("way", turnkeeper.EffectKeyed).does(later).withBackground(),
			more: wait, until: func(b *bench) { b.lose(agentturn.PointModelBefore, 2) }},
		"in a transaction": {way: within},
		"resumed with input": {way: asksFirst, until: func(b *bench) {
			b.waits()
			b.answer(seat(4))
		}},
		"looked up": {way: &reconciler{once("way").does(give), find}, until: loseRun},
		"looked up, did not happen": {way: &reconciler{once("way"), func() (tools.Result, bool, error) {
			return tools.Result{Text: big}, false, nil
		}}, until: loseRun},
		"looked up where it ran detached": {way: &reconciler{far("way", turnkeeper.EffectOnce), find},
			until: func(b *bench) {
				b.restart(asks("way"), asks("quick"), asks("send"), says("Done."))
				b.waits()
				b.store.arrive(farKey, turnkeeper.CallUnknown, prompt.ShownUnknown)
			}},
		"detached": {way: far("way", turnkeeper.EffectKeyed).does(give), until: func(b *bench) {
			b.restart(asks("way"), asks("quick"), asks("send"), says("Done."))
			b.waits()
			state, err := b.runner().RunDetached(b.t.Context(), b.store.claim(farKey), b.store.conn)
			if err != nil || state != turnkeeper.CallSucceeded {
				b.t.Errorf("the detached call is %s, %v", state, err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, taken := membudget.New(16<<20, 4<<20), false
				steps := append([]inferencetest.Step{asks("way", "quick")}, c.more...)
				b := asyncBench(t, append(steps, asks("send"), says("Done."))...).with(c.way, read("quick"),
					once("send").does(func(context.Context, tools.Call) (tools.Result, error) {
						if use := memory.Use(); use != (membudget.Use{}) { // its start was written after the result
							t.Errorf("%+v once the result was recorded", use)
						}
						return tools.Result{Text: "sent"}, nil
					}))
				b.config = func(c *agentturn.Config) {
					c.ResultMemory = memory
					c.Fault = hookBefore(c.Fault, func() { taken = taken || memory.Use().Held > 0 })
				}
				if c.until != nil {
					c.until(b)
				}
				if use := memory.Use(); use != (membudget.Use{}) {
					t.Errorf("%+v between the dispatches", use)
				}
				b.succeeds("Done.")
				if use := memory.Use(); use != (membudget.Use{}) || !taken {
					t.Errorf("%+v at the end; the result has held memory: %t", use, taken)
				}
			})
		})
	}
}

// hookBefore returns a hook that calls f before another hook, which may be nil.
func hookBefore(next fault.Hook, f func()) fault.Hook {
	return hook(func(label string) {
		f()
		if next != nil {
			next.At(context.Background(), label)
		}
	})
}
