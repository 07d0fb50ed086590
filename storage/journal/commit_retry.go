package journal

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/words"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// write writes to the journal exactly once, or fails.
func (w *Writer) write(ctx context.Context, write commit.Write) (err error) {
	op := w.store.db.Operation(w.grant.TurnID)
	defer func() { op.Done(err) }()
	w.op = op
	return w.journal.Write(ctx, commit.Database{
		Uncertain: pg.Uncertain,
		KeyTaken:  pg.KeyTaken,
		Failed:    op.Failed,
		ReadBack: func(ctx context.Context) (commit.Row, error) {
			row, err := w.store.db.Q.ReadBack(ctx, w.journal.Entries+1, int64(w.grant.TurnID))
			return commitRow(row), pg.Translate(err)
		},
	}, write)
}

// leastNotice is the least wait of a write for the database that the turn's events show.
const leastNotice = time.Second

// noteWait returns the events of an entry with, before them, the time that its write has waited for the database.
func (w *Writer) noteWait(events []turnkeeper.Event) []turnkeeper.Event {
	waited, sqlState := w.op.Waited()
	if waited < leastNotice {
		return events
	}
	round := 0
	if len(events) > 0 {
		round = events[0].Round
	}
	return append([]turnkeeper.Event{turnlog.RefusedWrite{For: waited, SQLState: sqlState}.Event(round,
		words.Refused(waited, sqlState))}, events...)
}

func commitRow(r dbsqlc.ReadBackRow) commit.Row {
	return commit.Row{
		Token: r.Token, GrantID: turnkeeper.GrantID(dbrow.OrZero(r.GrantID)),
		WorkerID: turnkeeper.WorkerID(dbrow.OrZero(r.WorkerID)),
		State:    turnkeeper.TurnState(r.State), Entries: r.Entries, WriteID: r.WriteID,
	}
}
