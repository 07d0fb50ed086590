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
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"turnkeeper/internal/fault"
	"turnkeeper/migrations"
	"turnkeeper/storage/internal/dbsqlc"
)

// Schema is the schema that holds every table, River's included.
const Schema = "turnkeeper"

// A Store is the state of Turnkeeper in one database.
type Store struct {
	pool   *pgxpool.Pool
	finish *pgxpool.Pool // for ends of turns only, so that they never queue behind reads
	queue  *pgxpool.Pool // for River's own statements
	q      *dbsqlc.Queries
	files  fs.FS // migrations
	log    *zap.Logger
	mask   func(string) string // nil: nothing is masked
	fault  fault.Hook

	statementTimeout                  time.Duration
	migrationLockTime, migrationPause time.Duration // these constants, but for tests
	looksAt                           int32         // most that a search looks at; the constant, but for tests
}

// Open connects. It fails in plain words when the database cannot be reached.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	s := &Store{
		files: migrations.Files, log: o.Log, mask: o.Mask, fault: o.Fault, statementTimeout: o.StatementTimeout,
		migrationLockTime: migrationLockTime, migrationPause: migrationPause, looksAt: looksAt,
	}
	resets := &resetter{log: o.Log, held: map[*pgx.Conn]bool{}}
	err := cmp.Or( // what is wrong with one is wrong with all
		s.connect(ctx, &s.pool, o, resets, o.MaxConns, "turnkeeper", nil),
		s.connect(ctx, &s.finish, o, resets, o.FinishConns, "turnkeeper finish", nil),
		s.connect(ctx, &s.queue, o, resets, queueConns, queueName, doorbellsOnly),
	)
	if err == nil {
		s.q = dbsqlc.New(s.pool)
		err = s.Ping(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// queueName is the name of River's connections.
const queueName = "turnkeeper queue"

// queueConns are what River holds and needs at once: a listener, fetches, upkeep.
const queueConns = 4

// doorbellsOnly lets River's own commits go without waiting for the disk. A
// server that crashes may forget that a job was fetched and give it out again;
// the grant belongs to the worker that first wrote under it, so the second
// fetch does nothing.
var doorbellsOnly = map[string]string{"synchronous_commit": "off"}

func (s *Store) connect(ctx context.Context, to **pgxpool.Pool, o Options, resets *resetter, conns int, name string, more map[string]string) (err error) {
	*to, err = connect(ctx, o, resets, conns, name, more)
	return err
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

// QueuePool is for River's client. A commit there may be lost when the server
// crashes.
func (s *Store) QueuePool() *pgxpool.Pool { return s.queue }

// Close ends all connections. It waits for those in use.
func (s *Store) Close() {
	for _, pool := range []*pgxpool.Pool{s.queue, s.finish, s.pool} {
		if pool != nil {
			pool.Close()
		}
	}
}
