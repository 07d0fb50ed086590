package database

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"turnkeeper/internal/config"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/pgdev"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// A Database is an open database: that of database_url, or a private one in the data folder.
type Database struct {
	Store   *operate.Store
	URL     string // a secret
	Private bool   // a private server, which stops with its last user

	server  *pgdev.Server
	private pgdev.Options // options of server
	Log     *zap.Logger
}

// Open opens the database of cfg, and starts a private one if database_url is not set. It does not
// change the schema. outage logs that the database is away; nil: nothing does. fault is nil except in tests.
func Open(ctx context.Context, cfg *config.Config, log *zap.Logger, outage *storage.Outage,
	fault fault.Hook) (*Database, error) {
	db := &Database{URL: cfg.DatabaseURL.Reveal(), Log: log}
	if !cfg.DatabaseURL.IsSet() {
		db.private = pgdev.Options{Dir: cfg.DataDir, Log: log}
		server, err := pgdev.Open(ctx, db.private)
		if err != nil {
			return nil, err
		}
		db.server, db.URL, db.Private = server, server.URL(), true
	}
	store, err := operate.Open(ctx, storage.Options{
		URL: db.URL, MaxConns: cfg.DBPoolSize, Log: log, Outage: outage, Mask: cfg.Masker().String, Fault: fault,
	})
	if err != nil {
		return nil, errors.Join(err, db.Close(ctx))
	}
	db.Store = store
	return db, nil
}

// Where says where the database is, for people.
func (db *Database) Where() string {
	if db.Private {
		return "private, in " + db.private.Dir
	}
	return "that of DATABASE_URL"
}

// CheckSchema returns an error if the schema is older than this program, or too new for it.
func (db *Database) CheckSchema(ctx context.Context) error {
	all, err := db.Store.Migrations(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if !m.Applied {
			return fmt.Errorf(
				"the database needs migration %s: run \"turnctl migrate\", or start the worker with migrate_on_start",
				m)
		}
	}
	return storage.CheckCompatible(all)
}

// Close closes the connections and releases the private server.
func (db *Database) Close(ctx context.Context) error {
	if db.Store != nil {
		db.Store.Close()
	}
	if db.server == nil {
		return nil
	}
	return db.server.Close(context.WithoutCancel(ctx))
}
