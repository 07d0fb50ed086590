// Package storage opens the database that keeps Turnkeeper's state, migrates its schema, and
// accepts messages. What else is kept is read and written by the packages under it: journal is
// for who runs a turn, grants for schedulers and workers, operate for operators and clients.
//
// The methods of all stores are safe for concurrent use, except those of a journal.Writer, which
// belongs to one dispatch of one turn. Writes that are one fact are one transaction, sent in one
// round trip where nothing needs to be read between.
//
// Errors that callers branch on are those of package turnkeeper. The packages import no behaviour
// (scheduler, agentturn) and no River; of River's tables they read and close rows by plain SQL, so
// that a reply and the end of its job can be one write.
package storage

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/migrations"
	"turnkeeper/storage/internal/pg"
)

// Schema is the schema that holds every table, River's included.
const Schema = "turnkeeper"

// A DB is an open database.
type DB struct {
	core  *pg.DB
	files fs.FS // migrations

	migrationLockTime, migrationPause time.Duration // these constants, but for tests
}

// Options say how to connect.
type Options = pg.Options

// Open connects. It fails in plain words when the database cannot be reached.
func Open(ctx context.Context, o Options) (*DB, error) {
	core, err := pg.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &DB{core: core, files: migrations.Files, migrationLockTime: migrationLockTime, migrationPause: migrationPause}, nil
}

// Core returns the connections, for the packages under this one.
func (s *DB) Core() *pg.DB { return s.core }

// Ping asks the database for a sign of life.
func (s *DB) Ping(ctx context.Context) error { return s.core.Ping(ctx) }

// Pool is the connection pool, for what must share a transaction with it.
func (s *DB) Pool() *pgxpool.Pool { return s.core.Pool }

// QueuePool is for River's client. A commit there may be lost when the server
// crashes.
func (s *DB) QueuePool() *pgxpool.Pool { return s.core.Queue }

// Close ends all connections. It waits for those in use.
func (s *DB) Close() { s.core.Close() }
