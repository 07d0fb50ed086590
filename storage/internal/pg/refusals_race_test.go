package pg

import (
	"runtime"
	"sync"
	"testing"

	"go.uber.org/zap"

	"turnkeeper"
)

// TestRefusalsOfManyWriters notes refusals, ends of writes and rechecks from several goroutines. The race detector, or
// the map itself, notices a lock that is missing. In the end nothing is refused.
func TestRefusalsOfManyWriters(t *testing.T) {
	t.Parallel()
	db := &DB{Refusals: newRefusals(Options{Log: zap.NewNop()})}
	refused := &serverError{code: "53100"}
	heartbeat := db.Operation(0)
	var group sync.WaitGroup
	for _, do := range []func(n int){
		func(n int) {
			o := db.Operation(turnkeeper.TurnID(n + 1))
			o.Failed(refused)
			o.Done(map[bool]error{true: refused}[n%3 == 0]) // some are given up
		},
		func(n int) {
			o := db.Operation(turnkeeper.TurnID(n + 1))
			o.Failed(refused)
			o.Done(nil)
		},
		func(n int) { heartbeat.Note(map[bool]error{true: refused}[n%2 == 0]) },
		func(n int) { db.Refusals.Recheck(func() error { return map[bool]error{true: refused}[n%2 == 0] }) },
		func(int) { _, _ = db.Refusals.Now(), db.Refusals.Counts() },
	} {
		group.Go(func() {
			for n := range 2000 {
				if do(n); n%8 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	group.Wait()
	heartbeat.Note(nil)
	db.Refusals.Recheck(func() error { return nil })
	if left := db.Refusals.Now(); len(left) > 0 {
		t.Errorf("refused are %+v", left)
	}
}
