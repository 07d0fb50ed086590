package journal

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/pg"
)

// Transact records the start of a call, runs it, and records its result, in one
// transaction, which run finds in its context (see pg.TxFrom). within is the longest
// time that run takes, and the idle timeout of the transaction. A result in state
// CallFailed undoes what run wrote. Transact returns the recorded result, which is a
// failure if a statement of run failed.
//
// Errors are those of Append. If the transaction cannot commit, nothing of the call has
// happened, and Transact calls run again if the reason was temporary. If the connection
// broke during a statement of run, Transact calls run again, until within has passed.
// If run broke the connection itself, as when its context ends during a statement, the
// failure is recorded.
func (w *Writer) Transact(ctx context.Context, start turnlog.CallStart, within time.Duration,
	run func(context.Context) turnlog.CallResult,
) (result turnlog.CallResult, err error) {
	const steps = 2 // one for the start, one for the result
	began := time.Now()
	before := w.calls
	err = w.write(ctx, commit.Write{Entries: steps, Attempt: func(ctx context.Context, id string) error {
		return pg.Translate(w.inTx(ctx, func(tx pgx.Tx) error {
			w.calls = before
			if err := w.sendIn(ctx, tx, step{id: id}, turnlog.Entry{Starts: []turnlog.CallStart{start},
				Events: w.noteWait(nil)}); err != nil {
				return err
			}
			if err := w.letWait(ctx, tx, within); err != nil {
				return err
			}
			broke := func() bool { return false }
			result, err = runInSavepoint(ctx, tx, func(ctx context.Context) turnlog.CallResult {
				ctx, stop := context.WithDeadline(ctx, began.Add(within))
				defer stop()
				ctx, broke = pg.WatchBreak(ctx)
				return run(ctx)
			})
			if err != nil {
				again := broke() && time.Since(began) < within
				if failed := result; failed.State == turnkeeper.CallFailed && !again {
					run = func(context.Context) turnlog.CallResult { return failed }
				}
				return err
			}
			return w.sendIn(ctx, tx, step{id: id, after: 1}, turnlog.Entry{Results: []turnlog.CallResult{result}})
		}))
	}})
	if err != nil {
		w.calls = before
	}
	return result, err
}

// inTx runs f in a transaction that commits when f returns nil.
func (w *Writer) inTx(ctx context.Context, f func(pgx.Tx) error) error {
	return w.store.db.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if err = f(tx); err == nil {
			err = pg.CommitTx(ctx, conn, func() { w.store.db.At(ctx, pointTransactSent) })
		}
		if err != nil {
			pg.RollBack(ctx, conn)
		}
		return err
	})
}

// letWait sets the idle timeout of a transaction to the time that its tool may run: a worker
// that is stopped in it keeps the tool's locks for that long.
func (w *Writer) letWait(ctx context.Context, tx pgx.Tx, within time.Duration) error {
	_, err := tx.Exec(ctx, "select set_config('idle_in_transaction_session_timeout', $1, true)",
		pg.Millis(within+time.Second))
	return err
}

func (w *Writer) sendIn(ctx context.Context, tx pgx.Tx, at step, e turnlog.Entry) error {
	c, err := w.change(at, e, turnlog.Consequence{})
	if err != nil {
		return err
	}
	_, err = send(ctx, tx, []*change{c}, true, func() {})
	w.calls = c.states
	return err
}

// runInSavepoint runs a tool in a savepoint, so that a failure undoes its writes and
// leaves the transaction usable for recording the failure. A tool that reports success
// after one of its statements failed counts as failed.
func runInSavepoint(ctx context.Context, tx pgx.Tx,
	run func(context.Context) turnlog.CallResult) (turnlog.CallResult, error) {
	save, err := tx.Begin(ctx)
	if err != nil {
		return turnlog.CallResult{}, err
	}
	result := run(pg.WithTx(ctx, save))
	const inFailedTransaction = 'E'
	if result.State == turnkeeper.CallSucceeded && tx.Conn().PgConn().TxStatus() == inFailedTransaction {
		result = undone(result, shownBroken)
	}
	if result.State == turnkeeper.CallSucceeded {
		err := checkDeferred(ctx, save)
		if tx.Conn().PgConn().TxStatus() != inFailedTransaction {
			return result, err // the rollback of the transaction includes the savepoint
		}
		result = undone(result, shownRefused)
	}
	return result, save.Rollback(ctx)
}

// Results of tools that report success but whose writes cannot be kept.
const (
	shownBroken  = "tool error: a statement of the tool failed in the database, and so nothing of it was kept"
	shownRefused = "tool error: what the tool wrote was refused by the database, and so nothing of it was kept"
)

func undone(r turnlog.CallResult, shown string) turnlog.CallResult {
	r.State, r.Output, r.Attached, r.Shown, r.Preview = turnkeeper.CallFailed, nil, nil, shown, shown
	return r
}

// checkDeferred runs the deferred constraint checks now, while a failure can still be
// attributed to the tool.
func checkDeferred(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "set constraints all immediate")
	return err
}
