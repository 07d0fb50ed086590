package app

import (
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/pgdev"
)

// lookEvery is how often a worker looks whether the private database still runs.
const lookEvery = time.Second

// keepUp starts the private database again when it has died, as by a system that was
// short of memory, until ctx ends. It comes back at the same address, and what was
// waiting for it goes on. Nothing else may use or close db's server meanwhile.
func (db *Database) keepUp(ctx context.Context) {
	if !db.Private {
		return
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if db.server.Alive() {
			continue
		}
		db.log.Warn("the private Postgres has died; it is started again", zap.String("its_log", db.server.LogFile()))
		if err := db.revive(ctx); err != nil && ctx.Err() == nil {
			db.log.Error("the private Postgres could not be started again; it is tried once more", zap.Error(err))
		}
	}
}

func (db *Database) revive(ctx context.Context) error {
	server, err := pgdev.Open(ctx, db.private)
	if err != nil {
		return err
	}
	// The share in the dead one is given up after the new one is had: nobody else is
	// to stop the server in between.
	dead := db.server
	db.server = server
	db.log.Info("the private Postgres runs again")
	return dead.Close(ctx)
}
