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

// A tool that times out during a statement has failed. It is not retried for the rest of the turn's
// time.
func TestTransactionalToolThatTimesOutInAStatementHasFailed(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	k := storagetest.Key(1, 1)
	ctx, stop := context.WithTimeout(t.Context(), storagetest.Patience) // the time of the turn
	defer stop()
	runs := 0
	_, err := d.Transact(ctx, storagetest.Start(k, "n", 1, turnkeeper.EffectOnce), time.Minute,
		func(ctx context.Context) turnlog.CallResult {
			runs++
			own, stop := context.WithTimeout(ctx, 300*time.Millisecond) // its tool_timeout
			defer stop()
			tx, _ := storage.TxFrom(ctx)
			_, err := tx.Exec(own, "select pg_sleep(60)")
			return storagetest.Result(k, "n", turnkeeper.CallFailed,
				"tool error: 'tool' timed out after 0.3 s: "+err.Error())
		})
	if err != nil || runs != 1 {
		t.Fatalf("ran %d times, error %v", runs, err)
	}
	if call := h.Call(d.Grant.TurnID, k); call.State != turnkeeper.CallFailed {
		t.Errorf("the call is %s, shows %q", call.State, call.Shown)
	}
}

// The connection of a transactional tool breaks during a statement. Its writes are undone, and it
// is run again unless its time is over. The idle timeout of its transaction follows from its time.
func TestTransactionalToolWhoseConnectionBreaksIsRunAgain(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration
		runs   int
		state  turnkeeper.CallState
	}{
		"in its time":       {time.Minute, 2, turnkeeper.CallSucceeded},
		"its time was over": {time.Nanosecond, 1, turnkeeper.CallFailed},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			d := h.Turn("x")
			d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
			k := storagetest.Key(1, 1)
			runs, idle := 0, ""
			_, err := d.Transact(t.Context(), storagetest.Start(k, "n", 1, turnkeeper.EffectOnce), c.within,
				func(ctx context.Context) turnlog.CallResult {
					runs++
					ctx = context.WithoutCancel(ctx) // the tool ignores its timeout
					tx, _ := storage.TxFrom(ctx)
					var pid int
					if err := tx.QueryRow(ctx,
						"select pg_backend_pid(), current_setting('idle_in_transaction_session_timeout')").Scan(&pid,
						&idle); err != nil {
						t.Error(err)
					}
					if _,
						err := tx.Exec(ctx,
						"insert into turnkeeper.notes (agent, name, content) values ('clerk', 'of the tool', 'x')"); err != nil {
						t.Error(err)
					}
					if runs == 1 {
						h.Exec("select pg_terminate_backend($1, 60000)", pid)
					}
					if _, err := tx.Exec(ctx, "select"); err != nil {
						return storagetest.Result(k, "n", turnkeeper.CallFailed, "tool error: "+err.Error())
					}
					return storagetest.Result(k, "n", turnkeeper.CallSucceeded, "done")
				})
			if err != nil || runs != c.runs {
				t.Fatalf("ran %d times, error %v", runs, err)
			}
			if call := h.Call(d.Grant.TurnID, k); call.State != c.state {
				t.Errorf("the call is %s, shows %q", call.State, call.Shown)
			}
			if notes := storagetest.One[int](h, "select count(*) from turnkeeper.notes"); notes != c.runs-1 {
				t.Errorf("%d notes", notes)
			}
			if c.within == time.Minute && idle != "61s" {
				t.Errorf("the transaction may be left alone for %s", idle)
			}
		})
	}
}

// The connection breaks after the tool's last statement. Nothing of its transaction is on record,
// and it is run again.
func TestTransactionalToolWhoseConnectionBreaksAfterIt(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	k := storagetest.Key(1, 1)
	runs := 0
	recorded, err := d.Transact(t.Context(), storagetest.Start(k, "n", 1, turnkeeper.EffectOnce), time.Minute,
		func(ctx context.Context) turnlog.CallResult {
			runs++
			tx, _ := storage.TxFrom(ctx)
			var pid int
			if err := tx.QueryRow(ctx,
				`insert into turnkeeper.notes (agent, name, content) values ('clerk', 'of the tool', 'x')
			returning pg_backend_pid()`).Scan(&pid); err != nil {
				t.Error(err)
			}
			if runs == 1 {
				h.Exec("select pg_terminate_backend($1, 60000)", pid)
			}
			return storagetest.Result(k, "n", turnkeeper.CallSucceeded, "done")
		})
	if err != nil || runs != 2 || recorded.State != turnkeeper.CallSucceeded {
		t.Fatalf("ran %d times, recorded as %s %q, error %v", runs, recorded.State, recorded.Shown, err)
	}
	if notes := storagetest.One[int](h, "select count(*) from turnkeeper.notes"); notes != 1 {
		t.Errorf("%d notes", notes)
	}
}
