package storage_test

import (
	"context"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

// What a transactional tool wrote may be refused only when it is checked at the
// commit. That is a failure of the tool, and no end of the turn.
func TestTransactionalToolThatBreaksADeferredConstraintHasFailed(t *testing.T) {
	h := newHouse(t)
	h.exec("create table public.parents (id integer primary key)")
	h.exec("create table public.children (parent integer references public.parents deferrable initially deferred)")
	d := h.turn("x")
	d.append(t, turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce)})
	k := key(1, 1)
	recorded, err := d.Transact(t.Context(), start(k, "n", 1, turnkeeper.EffectOnce), time.Minute, func(ctx context.Context) turnkeeper.CallResult {
		tx, _ := storage.TxFrom(ctx)
		if _, err := tx.Exec(ctx, "insert into public.children values (1)"); err != nil {
			t.Error(err)
		}
		return result(k, "n", turnkeeper.CallSucceeded, "all is well")
	})
	if err != nil {
		t.Fatal(err)
	}
	if call := h.call(d.grant.TurnID, k); recorded.State != turnkeeper.CallFailed || call.State != turnkeeper.CallFailed {
		t.Errorf("recorded as %s, the call is %s: %s", recorded.State, call.State, recorded.Shown)
	}
	d.finish(t, "done")
}
