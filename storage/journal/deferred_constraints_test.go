package journal_test

import (
	"context"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// A deferred constraint may refuse the rows of a transactional tool at the commit. The call then
// fails, and the turn continues.
func TestTransactionalToolThatBreaksADeferredConstraintHasFailed(t *testing.T) {
	h := newEnv(t)
	h.Exec("create table public.parents (id integer primary key)")
	h.Exec("create table public.children (parent integer references public.parents deferrable initially deferred)")
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	k := storagetest.Key(1, 1)
	recorded, err := d.Transact(t.Context(), storagetest.Start(k, "n", 1, turnkeeper.EffectOnce), time.Minute,
		func(ctx context.Context) turnlog.CallResult {
			tx, _ := storage.TxFrom(ctx)
			if _, err := tx.Exec(ctx, "insert into public.children values (1)"); err != nil {
				t.Error(err)
			}
			return storagetest.Result(k, "n", turnkeeper.CallSucceeded, "all is well")
		})
	if err != nil {
		t.Fatal(err)
	}
	if call := h.Call(d.Grant.TurnID, k); recorded.State != turnkeeper.CallFailed ||
		call.State != turnkeeper.CallFailed {
		t.Errorf("recorded as %s, the call is %s: %s", recorded.State, call.State, recorded.Shown)
	}
	d.Finish(t, "done")
}
