// Package storage keeps Turnkeeper's state in Postgres: nouns in, nouns out.
//
// One Store serves a process. Its methods are safe for concurrent use, except
// those of a TurnWriter, which belongs to one dispatch of one turn. Every write
// under a lease locks the turn's row and checks token and grant id there, with
// no time in the condition. Writes that are one fact are one transaction, sent
// in one round trip where nothing needs to be read between.
//
// Errors that callers branch on are those of package turnkeeper. The package
// imports no behaviour (scheduler, agentturn) and no River; of River's tables
// it reads and closes rows by plain SQL, so that a reply and the end of its job
// can be one write.
package storage

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"turnkeeper/storage/internal/dbsqlc"
)

// Schema is the schema that holds every table, River's included.
const Schema = "turnkeeper"

// A Store is the state of Turnkeeper in one database.
type Store struct {
	pool   *pgxpool.Pool
	finish *pgxpool.Pool // for ends of turns only, so that they never queue behind reads
	q      *dbsqlc.Queries
	log    *zap.Logger
	mask   func(string) string // nil: nothing is masked
}

// Open connects. It fails in plain words when the database cannot be reached.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	pool, err := connect(ctx, o, o.MaxConns, "turnkeeper")
	if err != nil {
		return nil, err
	}
	finish, err := connect(ctx, o, o.FinishConns, "turnkeeper finish")
	if err != nil {
		pool.Close()
		return nil, err
	}
	s := &Store{pool: pool, finish: finish, q: dbsqlc.New(pool), log: o.Log, mask: o.Mask}
	if err := s.Ping(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Ping asks the database for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("the database cannot be reached: %w", plainConnect(err))
	}
	return nil
}

// Pool is the connection pool, for what must share a transaction with it.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Close ends all connections. It waits for those in use.
func (s *Store) Close() {
	s.finish.Close()
	s.pool.Close()
}
