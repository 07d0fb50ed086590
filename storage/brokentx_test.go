package storage_test

import (
	"context"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

// A tool that runs out of its time in the middle of a statement has failed, once:
// it is not run again for the turn's whole time.
func TestTransactionalToolThatTimesOutInAStatementHasFailed(t *testing.T) {
	h := newHouse(t)
	d := h.turn("x")
	d.append(t, turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce)})
	k := key(1, 1)
	ctx, stop := context.WithTimeout(t.Context(), patience) // the turn's time
	defer stop()
	runs := 0
	_, err := d.Transact(ctx, start(k, "n", 1, turnkeeper.EffectOnce), time.Minute, func(ctx context.Context) turnkeeper.CallResult {
		runs++
		own, stop := context.WithTimeout(ctx, 300*time.Millisecond) // its tool_timeout
		defer stop()
		tx, _ := storage.TxFrom(ctx)
		_, err := tx.Exec(own, "select pg_sleep(60)")
		return result(k, "n", turnkeeper.CallFailed, "tool error: 'tool' timed out after 0.3 s: "+err.Error())
	})
	if err != nil || runs != 1 {
		t.Fatalf("ran %d times, error %v", runs, err)
	}
	if call := h.call(d.grant.TurnID, k); call.State != turnkeeper.CallFailed {
		t.Errorf("the call is %s, shows %q", call.State, call.Shown)
	}
}
