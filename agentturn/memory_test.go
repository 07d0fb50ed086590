package agentturn_test

import (
	"context"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
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
