// Package grants gives turns to workers: the scheduler's tick, grants and their reclaim, the
// heartbeats of workers, and budgets.
package grants

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/pg"
	"turnkeeper/storage/journal"
)

// A Store reads and writes grants and what the scheduler needs to decide on them.
type Store struct {
	db       *pg.DB
	journals *journal.Store
	scan     laneScan
	floor    floor
	beats    *pg.Operation // the heartbeats
}

// New returns the store of an open database.
func New(db *storage.DB) *Store {
	return &Store{db: db.Core(), journals: journal.New(db), scan: laneScan{long: longScan},
		beats: db.Core().Operation(0)}
}

// EndsRequested returns those of the grants whose turns somebody wants to end, and how.
func (s *Store) EndsRequested(ctx context.Context,
	grants []turnkeeper.GrantID) (map[turnkeeper.GrantID]turnlog.WantedEnd, error) {
	rows, err := s.db.Q.EndsRequested(ctx, dbrow.Texts(grants))
	asked := make(map[turnkeeper.GrantID]turnlog.WantedEnd, len(rows))
	for _, row := range rows {
		asked[turnkeeper.GrantID(row.GrantID)] = turnlog.WantedEnd(row.How)
	}
	return asked, pg.Translate(err)
}

// TakenGrants returns those of the grants that were taken away from their worker, because it counted as lost.
func (s *Store) TakenGrants(ctx context.Context, grants []turnkeeper.GrantID) ([]turnkeeper.GrantID, error) {
	taken, err := s.db.Q.TakenGrants(ctx, dbrow.Texts(grants))
	return dbrow.Map(taken, func(g string) turnkeeper.GrantID { return turnkeeper.GrantID(g) }), pg.Translate(err)
}

// HandedOnSince returns when the current series of hand-backs of a turn began, without
// any other end of a dispatch in between. Zero: its last dispatch was not handed back.
func (s *Store) HandedOnSince(ctx context.Context, turn turnkeeper.TurnID) (time.Time, error) {
	since, err := s.db.Q.HandedOnSince(ctx, int64(turn))
	if err != nil || since.Unix() == 0 {
		return time.Time{}, pg.Translate(err)
	}
	return since, nil
}

// OthersMayTake reports whether a live worker other than this one has not handed a turn back.
func (s *Store) OthersMayTake(ctx context.Context, turn turnkeeper.TurnID, self turnkeeper.WorkerID) (bool, error) {
	may, err := s.db.Q.OthersMayTake(ctx, string(self), int64(turn))
	return may, pg.Translate(err)
}

// GrantBefore returns the grant of a turn that came before grant, or fails with
// ErrNotFound if there was none.
func (s *Store) GrantBefore(ctx context.Context, turn turnkeeper.TurnID,
	grant turnkeeper.GrantID) (turnkeeper.Dispatch, error) {
	row, err := s.db.Q.GrantBefore(ctx, string(grant), int64(turn))
	return dbrow.Dispatch(row), pg.Translate(err)
}

// BindGrant binds a grant of a turn to the worker, which then is the only one that can
// write under it. A worker must bind a grant before any work on the turn, because
// River may give one job to two workers. first reports whether no worker had bound it
// before. BindGrant fails with ErrFenced if another worker has bound the grant, or if
// it is no longer the turn's grant. Binding a grant again is not an error. While the
// database is unavailable, BindGrant retries until ctx ends.
func (s *Store) BindGrant(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID,
	worker turnkeeper.WorkerID) (first bool, err error) {
	var holder turnkeeper.WorkerID
	err = s.db.Patiently(ctx, func() error {
		bound, err := s.db.Q.BindGrant(ctx, int64(turn), string(grant), string(worker))
		holder = turnkeeper.WorkerID(bound)
		return pg.Translate(err)
	})
	return commit.Bound(holder, worker, err)
}
