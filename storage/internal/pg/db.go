// Package pg connects to Postgres for the packages under storage: connection pools and their
// timeouts, pipelines, transactions, and the translation of errors.
package pg

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"turnkeeper/internal/fault"
	"turnkeeper/storage/internal/dbsqlc"
)

// A DB holds the connection pools of one database.
type DB struct {
	Pool   *pgxpool.Pool
	Finish *pgxpool.Pool   // for ends of turns only, which must not wait behind reads
	Queue  *pgxpool.Pool   // for River's statements, and heartbeats
	Q      *dbsqlc.Queries // on Pool
	Log    *zap.Logger
	Mask   func(string) string // nil: nothing is masked
	Fault  fault.Hook

	Refusals *Refusals // what the server refuses now
}

// Open connects to the database, unless the options are lazy. Its errors do not contain the connection string.
func Open(ctx context.Context, o Options) (*DB, error) {
	o = o.withDefaults()
	db := &DB{Log: o.Log, Mask: o.Mask, Fault: o.Fault, Refusals: newRefusals(o)}
	resets := &resetter{log: o.Log, held: map[*pgx.Conn]bool{}}
	err := cmp.Or( // all fail for the same reason
		db.connect(ctx, &db.Pool, o, resets, o.MaxConns, "turnkeeper", nil),
		db.connect(ctx, &db.Finish, o, resets, o.FinishConns, "turnkeeper finish", nil),
		db.connect(ctx, &db.Queue, o, resets, queueConns, queueName, doorbellsOnly),
	)
	if err == nil {
		db.Q = dbsqlc.New(db.Pool)
		if !o.Lazy {
			err = db.Ping(ctx)
		}
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// queueName is the application_name of River's connections.
const queueName = "turnkeeper queue"

// queueConns is the number of connections that River uses at once: listener, fetches, maintenance.
const queueConns = 4

// doorbellsOnly lets River commit without waiting for the disk. If the server crashes,
// it may forget that a job was fetched and hand it out again. The grant belongs to the
// worker that binds it first, so the second fetch does nothing.
var doorbellsOnly = map[string]string{"synchronous_commit": "off"}

func (*DB) connect(ctx context.Context, to **pgxpool.Pool, o Options, resets *resetter, conns int, name string,
	more map[string]string) (err error) {
	*to, err = connect(ctx, o, resets, conns, name, more)
	return err
}

// Ping fails if the database does not answer.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.Pool.Ping(ctx); err != nil {
		return fmt.Errorf("the database cannot be reached: %w", PlainConnect(err))
	}
	return nil
}

// Close closes all connections. It waits for those in use.
func (db *DB) Close() {
	for _, pool := range []*pgxpool.Pool{db.Queue, db.Finish, db.Pool} {
		if pool != nil {
			pool.Close()
		}
	}
}

// At calls the fault hook.
func (db *DB) At(ctx context.Context, label string) { fault.At(ctx, db.Fault, label) }
