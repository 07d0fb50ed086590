package storage_test

import (
	"context"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage"
)

// The database ends a session whose transaction is left alone for as long as a statement
// may take. A tool may wait for longer, where its own time is longer.
func TestTransactionalToolMayWaitForAsLongAsItMayRun(t *testing.T) {
	testrun.Slow(t)
	h := newHouse(t)
	const statementTimeout = time.Second
	store, err := storage.Open(t.Context(), storage.Options{URL: h.url, StatementTimeout: statementTimeout, MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	d := h.turn("x")
	d.TurnWriter = store.Writer(d.record, d.grant)
	d.append(t, turnkeeper.Entry{Round: round(1, turnkeeper.EffectOnce)})
	k, runs := key(1, 1), 0
	recorded, err := d.Transact(t.Context(), start(k, "n", 1, turnkeeper.EffectOnce), time.Minute, func(ctx context.Context) turnkeeper.CallResult {
		if runs++; runs > 1 {
			return result(k, "n", turnkeeper.CallFailed, "once more")
		}
		tx, _ := storage.TxFrom(ctx)
		if _, err := tx.Exec(ctx, "create table public.kept ()"); err != nil {
			t.Error(err)
		}
		h.awaitIdle(tx.Conn().PgConn().PID(), statementTimeout+statementTimeout/4)
		return result(k, "n", turnkeeper.CallSucceeded, "all is well")
	})
	if err != nil {
		t.Fatal(err)
	}
	if call := h.call(d.grant.TurnID, k); runs != 1 || recorded.State != turnkeeper.CallSucceeded || call.State != turnkeeper.CallSucceeded {
		t.Errorf("it ran %d times and is recorded as %s, the call is %s: %s", runs, recorded.State, call.State, recorded.Shown)
	}
	d.finish(t, "done")
	if n := one[int](h, "select count(*)::int from pg_class where relname = 'kept'"); n != 1 {
		t.Error("what it wrote was not kept")
	}
}

// awaitIdle returns when a session has been left alone for that long, or is gone.
func (h *house) awaitIdle(session uint32, long time.Duration) {
	h.t.Helper()
	const waits = "select exists(select from pg_stat_activity, pg_sleep(0.02) where pid = $1 and clock_timestamp() - state_change < $2)"
	for one[bool](h, waits, session, long) {
		// The database's clock is what is waited for.
	}
}
