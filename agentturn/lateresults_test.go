package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"turnkeeper"
	"turnkeeper/tools"
)

// TestWhichResultsAreReportedLate fences turns while a call runs. The result of a call that is started on record is
// kept, whatever it is. A call without a start on record is run again by whoever has the turn now.
func TestWhichResultsAreReportedLate(t *testing.T) {
	for name, c := range map[string]struct {
		effect turnkeeper.Effect
		result tools.Result
		late   []string
	}{
		"a read":          {turnkeeper.EffectNone, tools.Result{Text: "found"}, nil},
		"an effect":       {turnkeeper.EffectOnce, tools.Result{Text: "sent"}, []string{"succeeded sent"}},
		"without a text":  {turnkeeper.EffectOnce, tools.Result{}, []string{"succeeded "}},
		"keyed":           {turnkeeper.EffectKeyed, tools.Result{Text: "put"}, []string{"succeeded put"}},
		"an effect fails": {turnkeeper.EffectOnce, tools.Result{Text: "full", IsError: true}, []string{"failed full"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				b := newBench(t, asks("tool")).with(newTool("tool", c.effect).does(func(context.Context,
					tools.Call) (tools.Result, error) {
					cancel(turnkeeper.ErrFenced)
					return c.result, nil
				}))
				if _, err := b.dispatch(ctx); !errors.Is(err, turnkeeper.ErrFenced) {
					t.Errorf("error %v", err)
				}
				b.check()
				var late []string
				for _, r := range b.store.lateCalls {
					late = append(late, fmt.Sprintf("%s %s", r.State, r.Shown))
					if call := b.store.call(r.Key); r.Nonce == "" || r.Nonce != call.Nonce || !r.Ran {
						t.Errorf("%+v is reported of a call with the nonce %q", r, call.Nonce)
					}
				}
				if !slices.Equal(late, c.late) {
					t.Errorf("late results %q, want %q", late, c.late)
				}
			})
		})
	}
}
