// Package grants gives turns to workers: the scheduler's tick, the grants that it makes and takes back,
// the signs of life of workers, and the budgets that bound them.
package grants

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/storage"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/pg"
	"turnkeeper/storage/journal"
)

// A Store holds the grants of all lanes, and what the scheduler decides them by.
type Store struct {
	db       *pg.DB
	journals *journal.Store
}

// New returns the grants of a database.
func New(db *storage.DB) *Store { return &Store{db.Core(), journal.New(db)} }

// CancelledGrants are those of the grants whose turns somebody asked to be
// cancelled.
func (s *Store) CancelledGrants(ctx context.Context, grants []turnkeeper.GrantID) ([]turnkeeper.GrantID, error) {
	asked, err := s.db.Q.CancelledGrants(ctx, dbrow.Texts(grants))
	return dbrow.Map(asked, func(g string) turnkeeper.GrantID { return turnkeeper.GrantID(g) }), pg.Translate(err)
}

// HandedOnSince says since when a turn is handed from worker to worker, with nothing
// else between; zero: it was not handed back last.
func (s *Store) HandedOnSince(ctx context.Context, turn turnkeeper.TurnID) (time.Time, error) {
	since, err := s.db.Q.HandedOnSince(ctx, int64(turn))
	if err != nil || since.Unix() == 0 {
		return time.Time{}, pg.Translate(err)
	}
	return since, nil
}

// GrantBefore is the grant of a turn before another; ErrNotFound: there was none.
func (s *Store) GrantBefore(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID) (turnkeeper.Dispatch, error) {
	row, err := s.db.Q.GrantBefore(ctx, string(grant), int64(turn))
	return dbrow.Dispatch(row), pg.Translate(err)
}

// BindGrant binds a grant of a turn to the worker, which then is the only one
// that can write under it. It comes before any work on the turn, so that of two
// workers that were given the same job one learns here that the other has it.
// first says that nobody had it before. It fails with ErrFenced when another
// worker has it, or when it is no longer the turn's grant, and waits for a
// database that is away until ctx ends. To bind a grant again is no error.
func (s *Store) BindGrant(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID, worker turnkeeper.WorkerID) (first bool, err error) {
	var taker turnkeeper.WorkerID
	err = pg.Patiently(ctx, func() error {
		bound, err := s.db.Q.BindGrant(ctx, int64(turn), string(grant), string(worker))
		taker = turnkeeper.WorkerID(bound)
		return pg.Translate(err)
	})
	return commit.Bound(taker, worker, err)
}
