package journal

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/storage/internal/pg"
)

// Transact records the start of a call, runs it, and records its result, in one
// transaction, which run finds in its context (see pg.TxFrom). within is the longest that
// run takes: so long may the transaction be left alone. A result in state CallFailed undoes what run wrote. It returns what was recorded, which is a
// failure where a statement of run's had failed. Errors are those of Append; when the
// transaction cannot commit, nothing of the call has happened, and run is run
// again when the reason passes. A run that failed because the connection broke under
// one of its statements is run again, until within is over. One that broke it itself,
// as it does when its time ends in a statement, is recorded as it failed.
func (w *Writer) Transact(ctx context.Context, start turnkeeper.CallStart, within time.Duration,
	run func(context.Context) turnkeeper.CallResult,
) (result turnkeeper.CallResult, err error) {
	const steps = 2 // one for the start, one for the result
	began := time.Now()
	err = w.write(ctx, commit.Write{Entries: steps, Attempt: func(ctx context.Context, id string) error {
		return pg.Translate(w.inTx(ctx, func(tx pgx.Tx) error {
			if err := w.sendIn(ctx, tx, step{id: id}, turnkeeper.Entry{Starts: []turnkeeper.CallStart{start}}); err != nil {
				return err
			}
			if err := w.letWait(ctx, tx, within); err != nil {
				return err
			}
			broke := func() bool { return false }
			result, err = runInSavepoint(ctx, tx, func(ctx context.Context) turnkeeper.CallResult {
				ctx, stop := context.WithDeadline(ctx, began.Add(within))
				defer stop()
				ctx, broke = pg.WatchBreak(ctx)
				return run(ctx)
			})
			if err != nil {
				again := broke() && time.Since(began) < within
				if failed := result; failed.State == turnkeeper.CallFailed && !again {
					run = func(context.Context) turnkeeper.CallResult { return failed }
				}
				return err
			}
			return w.sendIn(ctx, tx, step{id: id, after: 1}, turnkeeper.Entry{Results: []turnkeeper.CallResult{result}})
		}))
	}})
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

// letWait lets a transaction be left alone for as long as its tool may run, and no longer: a
// worker that is stopped in it holds what the tool has locked.
func (w *Writer) letWait(ctx context.Context, tx pgx.Tx, within time.Duration) error {
	_, err := tx.Exec(ctx, "select set_config('idle_in_transaction_session_timeout', $1, true)",
		pg.Millis(within+time.Second))
	return err
}

func (w *Writer) sendIn(ctx context.Context, tx pgx.Tx, at step, e turnkeeper.Entry) error {
	p := &pg.Pipeline{}
	if err := w.queue(ctx, p.Queries(), at, e, Ending{}); err != nil {
		return err
	}
	return p.Send(ctx, tx, func() {})
}

// runInSavepoint runs a tool in a savepoint: a failure undoes its writes and
// leaves the transaction usable for the record of the failure. A tool that
// calls itself a success after a statement of its own failed is a failure too.
func runInSavepoint(ctx context.Context, tx pgx.Tx, run func(context.Context) turnkeeper.CallResult) (turnkeeper.CallResult, error) {
	save, err := tx.Begin(ctx)
	if err != nil {
		return turnkeeper.CallResult{}, err
	}
	result := run(pg.WithTx(ctx, save))
	const inFailedTransaction = 'E'
	if result.State == turnkeeper.CallSucceeded && tx.Conn().PgConn().TxStatus() == inFailedTransaction {
		result = undone(result, shownBroken)
	}
	if result.State == turnkeeper.CallSucceeded {
		err := checkDeferred(ctx, save)
		if tx.Conn().PgConn().TxStatus() != inFailedTransaction {
			return result, err // what the savepoint has goes with the transaction
		}
		result = undone(result, shownRefused)
	}
	return result, save.Rollback(ctx)
}

// Results of tools that call themselves a success, and of which nothing can be kept.
const (
	shownBroken  = "tool error: a statement of the tool failed in the database, and so nothing of it was kept"
	shownRefused = "tool error: what the tool wrote was refused by the database, and so nothing of it was kept"
)

func undone(r turnkeeper.CallResult, shown string) turnkeeper.CallResult {
	r.State, r.Output, r.Attached, r.Shown, r.Preview = turnkeeper.CallFailed, nil, nil, shown, shown
	return r
}

// checkDeferred has all that is checked at a commit be checked now, while a failure
// is still the tool's own.
func checkDeferred(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "set constraints all immediate")
	return err
}
