// Package commit writes to a turn's journal over a connection that may lose answers:
// each write is done once, or the writer learns that it cannot be done.
//
// A commit without an answer may have succeeded. So each write has a random ID, which
// is stored with it, and the writer reads back whether the write after its last one has
// that ID. Nothing else shows whose write it is: if another worker has written in the
// meantime, the journal has as many entries as if this one had.
//
// Package storage uses it with Postgres, and package memory with a database in memory,
// so that the simulation tests this code. The package itself depends on no database. A
// Writer belongs to one goroutine.
package commit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"turnkeeper"
	"turnkeeper/internal/pause"
)

// A Writer holds the position in a journal for the holder of a grant.
type Writer struct {
	Grant   turnkeeper.Grant
	Entries int64 // on record
}

// A Write is an atomic write to the journal.
type Write struct {
	Entries int64 // number of entries that it adds to the journal
	Ends    bool  // it ends the dispatch, and the grant
	// Attempt tries to write, and stores id with each entry.
	Attempt func(ctx context.Context, id string) error
}

// A Row is what a Writer compares: a part of the turn's row, and of its journal.
type Row struct {
	Token    int64
	GrantID  turnkeeper.GrantID
	WorkerID turnkeeper.WorkerID // worker that the grant is bound to
	State    turnkeeper.TurnState
	Entries  int64  // in the journal
	WriteID  string // id of the first entry after the Writer's; empty: there is none, or it has no id
}

// A Database gives a Writer access to the turn's row, and classifies the errors of attempts.
type Database struct {
	ReadBack func(context.Context) (Row, error) // reads the Row, in one snapshot
	// Uncertain reports whether an error leaves open if the write was done, or means
	// that it was undone for a temporary reason.
	Uncertain func(error) bool
	// KeyTaken reports whether an error means that a unique key refused the write.
	KeyTaken func(error) bool
	// Failed is called before an attempt is repeated, with its error. nil: it is not.
	Failed func(error)
}

// Write retries until the write is on record or can no longer be. It fails with
// ErrFenced if the turn no longer has the writer's grant, and with ErrJournalMoved if
// another writer has written. While the database is unavailable, it retries until ctx
// ends, and then fails with its cause.
func (w *Writer) Write(ctx context.Context, db Database, write Write) error {
	id := uuid.NewString()
	wait := firstRetry
	for failures := 1; ; failures++ {
		err := write.Attempt(ctx, id)
		if err == nil {
			w.Entries += write.Entries
			return nil
		}
		if db.KeyTaken(err) {
			return fmt.Errorf("%w: %w", turnkeeper.ErrJournalMoved, err)
		}
		// The writer's own write may cause a refusal: if its commit succeeded and the
		// answer was lost, the next attempt finds that write, or the turn that it
		// ended.
		refused := errors.Is(err, turnkeeper.ErrJournalMoved) || errors.Is(err, turnkeeper.ErrFenced)
		echo := refused && failures > 1
		if !db.Uncertain(err) && !echo && !endedOnTheWay(ctx, err) {
			return err
		}
		written, settled := w.readBack(ctx, db, write, id)
		switch {
		case settled != nil:
			return settled
		case written:
			w.Entries += write.Entries
			return nil
		case echo:
			return err
		}
		if db.Failed != nil {
			db.Failed(err)
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
		wait = min(wait*2, slowRetry)
	}
}

// endedOnTheWay reports whether ctx ended during a write, which may have been done.
func endedOnTheWay(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// readBackGrace is the timeout for finding out whether a write was done after the
// writer's own ctx has ended.
const readBackGrace = 3 * time.Second

// readBack reports whether the current write is on record. It returns an error if the
// write never will be, if the grant is over, or if ctx and the grace have ended.
func (w *Writer) readBack(ctx context.Context, db Database, write Write, id string) (written bool, err error) {
	row, err := db.row(ctx)
	if err != nil && ctx.Err() != nil {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackGrace)
		defer cancel()
		if row, err = db.row(grace); err != nil {
			return false, errors.Join(context.Cause(ctx), err)
		}
	}
	if err != nil {
		return false, err
	}
	return w.settle(row, write, id)
}

// row reads the turn's row, and retries while the database is unavailable.
func (db Database) row(ctx context.Context) (row Row, err error) {
	if ctx.Err() != nil {
		return row, context.Cause(ctx)
	}
	err = Patiently(ctx, db.Uncertain, db.Failed, func() (err error) {
		row, err = db.ReadBack(ctx)
		return err
	})
	return row, err
}

// settle decides from the turn's row whether a write without an answer was done.
func (w *Writer) settle(row Row, write Write, id string) (written bool, err error) {
	g := w.Grant
	held := row.State == turnkeeper.TurnRunning && row.Token == g.Token && row.GrantID == g.GrantID &&
		row.WorkerID == g.WorkerID
	own := row.WriteID == id
	switch {
	case own && (held || write.Ends):
		return true, nil
	case !held: // also after an own write: another worker continues from the journal
		return false, turnkeeper.ErrFenced
	case row.Entries == w.Entries:
		return false, nil
	default:
		return false, fmt.Errorf("%w: the next entry is not this writer's", turnkeeper.ErrJournalMoved)
	}
}

// Bound returns the result of binding a grant to worker. holder is the worker to which the
// grant was bound before, or empty; first reports whether it was empty. err is the error of
// the query, ErrNotFound if the turn no longer has this grant. Bound fails with ErrFenced if
// the turn no longer has the grant, or if another worker is bound to it.
func Bound(holder, worker turnkeeper.WorkerID, err error) (first bool, _ error) {
	switch {
	case errors.Is(err, turnkeeper.ErrNotFound):
		return false, fmt.Errorf("%w: the turn no longer has this grant", turnkeeper.ErrFenced)
	case err != nil:
		return false, err
	case holder != "" && holder != worker:
		return false, fmt.Errorf("%w: worker %s has this grant", turnkeeper.ErrFenced, holder)
	}
	return holder == "", nil
}
