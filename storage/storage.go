// Package storage opens the database that keeps Turnkeeper's state, migrates its schema, and
// accepts messages. The packages under it read and write everything else: journal serves the
// workers that run turns, grants the schedulers and workers, operate the operators and clients.
//
// The methods of all stores are safe for concurrent use, except those of a journal.Writer, which
// belongs to one dispatch of one turn. Writes that must become true together are one transaction,
// sent in one round trip unless something must be read in between.
//
// Callers branch on errors of package turnkeeper. The packages do not import behaviour (scheduler,
// agentturn) or River. They read and close rows of River's tables by plain SQL, so that a reply and
// the end of its job can be one write.
package storage

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"turnkeeper/internal/presence"
	"turnkeeper/migrations"
	"turnkeeper/storage/internal/pg"
)

// Schema is the schema that holds every table, River's included.
const Schema = "turnkeeper"

// A DB is an open database.
type DB struct {
	core  *pg.DB
	files fs.FS // migrations

	migrationLockTime, migrationPause time.Duration // the constants of the same names, except in tests
}

// Options configure Open.
type Options = pg.Options

// An Outage logs that the database is away.
type Outage = pg.Outage

// NewOutage returns an Outage that logs to log.
func NewOutage(log *zap.Logger) *Outage { return pg.NewOutage(log) }

// QuietLog returns a core for the log of a process that has an Outage.
func QuietLog(core zapcore.Core) zapcore.Core { return pg.QuietLog(core) }

// Open connects to the database. Its errors do not contain the connection string.
func Open(ctx context.Context, o Options) (*DB, error) {
	core, err := pg.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &DB{core: core, files: migrations.Files, migrationLockTime: migrationLockTime,
		migrationPause: migrationPause}, nil
}

// Core returns the connections. It is for the packages under this one.
func (s *DB) Core() *pg.DB { return s.core }

// Ping fails if the database does not answer.
func (s *DB) Ping(ctx context.Context) error { return s.core.Ping(ctx) }

// Refused returns what the server refuses this process now, the longest first.
func (s *DB) Refused() []presence.Refusal { return s.core.Refusals.Now() }

// RefusedAttempts returns how many attempts the server has refused since the start of the process, by SQLSTATE.
func (s *DB) RefusedAttempts() map[string]int64 { return s.core.Refusals.Counts() }

// Pool returns the main connection pool.
func (s *DB) Pool() *pgxpool.Pool { return s.core.Pool }

// QueuePool returns the connection pool for River's client. Its commits may be lost when
// the server crashes.
func (s *DB) QueuePool() *pgxpool.Pool { return s.core.Queue }

// Close closes all connections. It waits for those in use.
func (s *DB) Close() { s.core.Close() }
