// Package commit writes to a turn's journal over a connection whose answers get
// lost: each write is done once, or the writer learns that it cannot be done.
//
// A commit that was sent and not answered may have been done. So each write has
// a random id, which the row of the turn keeps with what was written, and the
// writer reads back whether the row has that id. Nothing else says whose a write
// is: another worker may have written in the meantime, and the journal then has
// as many entries as if this one had.
//
// Package storage does this with Postgres, package memory with a database in
// memory: so the simulation tests this code. The package knows no database. A
// Writer belongs to one goroutine.
package commit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"turnkeeper"
)

// A Writer knows where a journal stands for the holder of a grant.
type Writer struct {
	Grant     turnkeeper.Grant
	Entries   int64  // writes on record
	LastWrite string // id of the last of them; empty: there is none, or it has none
}

// A Write is something to be written, whole or not at all.
type Write struct {
	Entries int64 // that the journal grows by
	Ends    bool  // it ends the dispatch, and the grant with it
	// Attempt tries to write, and has the row of the turn keep id.
	Attempt func(ctx context.Context, id string) error
}

// A Row is what is on record about a turn.
type Row struct {
	Token     int64
	GrantID   turnkeeper.GrantID
	WorkerID  turnkeeper.WorkerID // that the grant is bound to
	State     turnkeeper.TurnState
	Entries   int64
	LastWrite string
}

// A Database is asked by a Writer.
type Database struct {
	ReadBack func(context.Context) (Row, error) // reads the turn's row
	// Uncertain says of an error that what failed may have been done, or was
	// undone for a reason that passes.
	Uncertain func(error) bool
	// KeyTaken says of an error that a unique key refused the write.
	KeyTaken func(error) bool
}

// Write makes one attempt after another until the write is on record, or cannot
// be any more: it fails with ErrFenced when the grant is not the writer's any
// more, and with ErrJournalMoved when somebody else has written. While the
// database is away it waits until ctx ends, and then fails with its cause.
func (w *Writer) Write(ctx context.Context, db Database, write Write) error {
	id := uuid.NewString()
	wait := firstRetry
	for again := false; ; again = true {
		err := write.Attempt(ctx, id)
		if err == nil {
			w.advance(write, id)
			return nil
		}
		if db.KeyTaken(err) {
			return fmt.Errorf("%w: %w", turnkeeper.ErrJournalMoved, err)
		}
		// A refusal may be the echo of our own write: its commit went through
		// and the answer was lost, so that the attempt after it finds itself,
		// or the turn that it has ended.
		refused := errors.Is(err, turnkeeper.ErrJournalMoved) || errors.Is(err, turnkeeper.ErrFenced)
		echo := refused && again
		if !db.Uncertain(err) && !echo && !endedOnTheWay(ctx, err) {
			return err
		}
		written, settled := w.readBack(ctx, db, write, id)
		switch {
		case settled != nil:
			return settled
		case written:
			w.advance(write, id)
			return nil
		case echo:
			return err
		}
		if !Pause(ctx, wait) {
			return context.Cause(ctx)
		}
		wait = min(wait*2, slowRetry)
	}
}

func (w *Writer) advance(write Write, id string) {
	w.Entries += write.Entries
	w.LastWrite = id
}

// endedOnTheWay says that the caller's time ended while a write was under way:
// whether it was done must still be found out.
func endedOnTheWay(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// readBackGrace bounds the question whether a write was done when the writer's
// own time is over.
const readBackGrace = 3 * time.Second

// readBack says whether the write under way is on record. An error means that it
// never will be, that the grant is over, or that the time to find out is.
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

// row reads the turn's row, and waits for a database that is away.
func (db Database) row(ctx context.Context) (row Row, err error) {
	if ctx.Err() != nil {
		return row, context.Cause(ctx)
	}
	err = Patiently(ctx, db.Uncertain, func() (err error) {
		row, err = db.ReadBack(ctx)
		return err
	})
	return row, err
}

// settle decides by the row of the turn about a write that was not answered.
func (w *Writer) settle(row Row, write Write, id string) (written bool, err error) {
	g := w.Grant
	held := row.State == turnkeeper.TurnRunning && row.Token == g.Token && row.GrantID == g.GrantID && row.WorkerID == g.WorkerID
	own := row.LastWrite == id
	switch {
	case own && (held || write.Ends):
		return true, nil
	case !held: // also after an own write: what is on record is another's to go on with
		return false, turnkeeper.ErrFenced
	case row.LastWrite == w.LastWrite && row.Entries == w.Entries:
		return false, nil
	default:
		return false, fmt.Errorf("%w: the last write is not this writer's", turnkeeper.ErrJournalMoved)
	}
}

// Bound says what it means that a grant, which was to be bound to worker, was
// found bound to taker, or to nobody: first, that it was worker's from then on. err
// is that of the question; ErrNotFound: it is no longer the turn's grant.
func Bound(taker, worker turnkeeper.WorkerID, err error) (first bool, _ error) {
	switch {
	case errors.Is(err, turnkeeper.ErrNotFound):
		return false, fmt.Errorf("%w: it is no longer the turn's grant", turnkeeper.ErrFenced)
	case err != nil:
		return false, err
	case taker != "" && taker != worker:
		return false, fmt.Errorf("%w: worker %s has this grant", turnkeeper.ErrFenced, taker)
	}
	return taker == "", nil
}
