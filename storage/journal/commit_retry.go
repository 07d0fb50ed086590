package journal

import (
	"context"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// write writes to the journal exactly once, or fails.
func (w *Writer) write(ctx context.Context, write commit.Write) error {
	return w.journal.Write(ctx, commit.Database{
		Uncertain: pg.Uncertain,
		KeyTaken:  pg.KeyTaken,
		Retrying:  w.store.db.Retrying,
		ReadBack: func(ctx context.Context) (commit.Row, error) {
			row, err := w.store.db.Q.ReadBack(ctx, w.journal.Entries+1, int64(w.grant.TurnID))
			return commitRow(row), pg.Translate(err)
		},
	}, write)
}

func commitRow(r dbsqlc.ReadBackRow) commit.Row {
	return commit.Row{
		Token: r.Token, GrantID: turnkeeper.GrantID(dbrow.OrZero(r.GrantID)), WorkerID: turnkeeper.WorkerID(dbrow.OrZero(r.WorkerID)),
		State: turnkeeper.TurnState(r.State), Entries: r.Entries, WriteID: r.WriteID,
	}
}
