package database

import (
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/pgdev"
)

// lookEvery is how often a worker looks whether the private database still runs.
const lookEvery = time.Second

// longestPause is how long it waits at most before it tries once more to start a
// private database that would not start.
const longestPause = 30 * time.Second

// KeepUp starts the private database again when it has died, as by a system that was
// short of memory, until ctx ends. It comes back at the same address, and what was
// waiting for it goes on. Nothing else may use or close db's server meanwhile.
func (db *Database) KeepUp(ctx context.Context) {
	if db.Private {
		keepAlive(ctx, func() bool { return db.server.Alive() }, db.revive, db.Log.With(zap.String("its_log", db.server.LogFile())))
	}
}

// keepAlive looks every second. Where the start fails it is tried for ever, after pauses
// that grow: a full disk is not emptied by a log that says so each second.
func keepAlive(ctx context.Context, alive func() bool, revive func(context.Context) error, log *zap.Logger) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	pause := time.Duration(0) // after the last failure; 0: none since it was alive
	next := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if alive() {
			pause = 0
			continue
		}
		if pause == 0 {
			log.Warn("the private Postgres has died; it is started again")
		} else if time.Now().Before(next) {
			continue
		}
		if err := revive(ctx); err != nil && ctx.Err() == nil {
			pause = min(max(2*pause, lookEvery), longestPause)
			next = time.Now().Add(pause)
			log.Error("the private Postgres could not be started again", zap.Error(err), zap.Duration("tried_again_in", pause))
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
	db.Log.Info("the private Postgres runs again")
	return dead.Close(ctx)
}
