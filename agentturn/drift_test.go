package agentturn_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tools"
)

// TestNoEffectOutlivesTheLeaseOfADriftingClock checks that no effect runs after the lease
// has ended by the database's clock, as long as the worker's clock drifts from it by less
// than the margin over one lease.
func TestNoEffectOutlivesTheLeaseOfADriftingClock(t *testing.T) {
	const ttl = 240 * time.Second
	for _, drift := range []float64{-0.1, 0, 0.001, 0.05, 0.1} {
		t.Run(fmt.Sprintf("%+.1f%%", 100*drift), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				granted := time.Now()
				shows := func() time.Duration { return time.Duration(float64(time.Since(granted)) * (1 + drift)) }
				runs := 0
				long := once("long").does(func(ctx context.Context, _ tools.Call) (tools.Result, error) {
					runs++
					<-ctx.Done() // its timeout
					if at := shows(); at >= ttl {
						t.Errorf("run %d ended when the database's clock showed %v of %v", runs, at, ttl)
					}
					return tools.Result{}, context.Cause(ctx)
				})
				var steps []inferencetest.Step
				for range 12 {
					steps = append(steps, asks("long"))
				}
				b := newBench(t, steps...).with(long)
				b.script.Then(says("done"))
				b.bounds.MaxRounds, b.bounds.LeaseTTL, b.bounds.ToolTimeout = 20, ttl, 25*time.Second
				b.lease, b.wall = ttl, ttl+time.Minute // only the lease bounds the call
				b.run(t.Context())
				if runs != 8 {
					t.Errorf("%d calls ran; the lease has time for 8", runs)
				}
			})
		})
	}
}
