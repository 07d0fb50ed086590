package journal_test

import (
	"context"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// The database ends a session whose transaction is idle for longer than the statement timeout. The
// transaction of a tool with a longer timeout may be idle for that longer time.
func TestTransactionalToolMayWaitForAsLongAsItMayRun(t *testing.T) {
	testrun.Slow(t)
	h := newEnv(t)
	const statementTimeout = time.Second
	store := storagetest.OpenWith(t, storage.Options{URL: h.URL, StatementTimeout: statementTimeout, MaxConns: 3})
	d := h.Turn("x")
	d.Writer = store.Writer(d.Record, d.Grant)
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	k, runs := storagetest.Key(1, 1), 0
	recorded, err := d.Transact(t.Context(), storagetest.Start(k, "n", 1, turnkeeper.EffectOnce), time.Minute,
		func(ctx context.Context) turnlog.CallResult {
			if runs++; runs > 1 {
				return storagetest.Result(k, "n", turnkeeper.CallFailed, "once more")
			}
			tx, _ := storage.TxFrom(ctx)
			if _, err := tx.Exec(ctx, "create table public.kept ()"); err != nil {
				t.Error(err)
			}
			h.awaitIdle(tx.Conn().PgConn().PID(), statementTimeout+statementTimeout/4)
			return storagetest.Result(k, "n", turnkeeper.CallSucceeded, "all is well")
		})
	if err != nil {
		t.Fatal(err)
	}
	if call := h.Call(d.Grant.TurnID, k); runs != 1 || recorded.State != turnkeeper.CallSucceeded ||
		call.State != turnkeeper.CallSucceeded {
		t.Errorf("it ran %d times and is recorded as %s, the call is %s: %s", runs, recorded.State, call.State,
			recorded.Shown)
	}
	d.Finish(t, "done")
	if n := storagetest.One[int](h, "select count(*)::int from pg_class where relname = 'kept'"); n != 1 {
		t.Error("what it wrote was not kept")
	}
}

// awaitIdle returns when a session has been idle for this long, or is gone.
func (h *env) awaitIdle(session uint32, long time.Duration) {
	h.T.Helper()
	const waits = "select exists(select from pg_stat_activity, pg_sleep(0.02) where pid = $1 and clock_timestamp() - state_change < $2)"
	for storagetest.One[bool](h, waits, session, long) {
		// Wait for the clock of the database.
	}
}
