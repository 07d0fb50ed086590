package agentturn_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
)

// TestAFencedProgressNoteKillsTheTool checks that a worker kills its tools when the fence
// refuses a write, even if the write only stores a call's progress.
func TestAFencedProgressNoteKillsTheTool(t *testing.T) {
	for name, effect := range map[string]turnkeeper.Effect{"a read": turnkeeper.EffectNone,
		"an effect": turnkeeper.EffectKeyed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *bench
				began := time.Now()
				var killed time.Duration
				b = newBench(t, asks("slow")).with(newTool("slow", effect).does(func(ctx context.Context,
					call tools.Call) (tools.Result, error) {
					b.store.dispatch() // another worker has the turn now
					call.Progress("half way")
					<-ctx.Done()
					killed = time.Since(began)
					return tools.Result{}, context.Cause(ctx)
				}))
				b.bounds.Async = false
				_, err := b.dispatch(t.Context())
				if !errors.Is(err, turnkeeper.ErrFenced) {
					t.Errorf("error %v", err)
				}
				if killed > time.Second {
					t.Errorf("the tool ran on for %s after its worker had lost the turn", killed)
				}
			})
		})
	}
}
