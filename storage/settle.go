package storage

import (
	"context"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/storage/internal/dbsqlc"
)

// BindGrant binds a grant of a turn to the worker, which then is the only one
// that can write under it. It comes before any work on the turn, so that of two
// workers that were given the same job one learns here that the other has it.
// first says that nobody had it before. It fails with ErrFenced when another
// worker has it, or when it is no longer the turn's grant, and waits for a
// database that is away until ctx ends. To bind a grant again is no error.
func (s *Store) BindGrant(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID, worker turnkeeper.WorkerID) (first bool, err error) {
	var taker turnkeeper.WorkerID
	err = patiently(ctx, func() error {
		bound, err := s.q.BindGrant(ctx, int64(turn), string(grant), string(worker))
		taker = turnkeeper.WorkerID(bound)
		return translate(err)
	})
	return commit.Bound(taker, worker, err)
}

// write makes a write to the journal, once.
func (w *TurnWriter) write(ctx context.Context, write commit.Write) error {
	return w.journal.Write(ctx, commit.Database{
		Uncertain: uncertain,
		KeyTaken:  keyTaken,
		ReadBack: func(ctx context.Context) (commit.Row, error) {
			row, err := w.store.q.ReadBack(ctx, int64(w.grant.TurnID))
			return lastWriteOf(row), translate(err)
		},
	}, write)
}

func lastWriteOf(r dbsqlc.ReadBackRow) commit.Row {
	return commit.Row{
		Token: r.Token, GrantID: turnkeeper.GrantID(orZero(r.GrantID)), WorkerID: turnkeeper.WorkerID(orZero(r.WorkerID)),
		State: turnkeeper.TurnState(r.State), Entries: r.Entries, LastWrite: orZero(r.WriteID),
	}
}

// patiently does f again as long as the reason that it failed for passes.
func patiently(ctx context.Context, f func() error) error {
	return commit.Patiently(ctx, uncertain, f)
}
