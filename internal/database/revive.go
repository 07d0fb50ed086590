package database

import (
	"context"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/pgdev"
)

// lookEvery is the interval at which a worker checks that the private database runs.
const lookEvery = time.Second

// longestPause is the maximum pause before another attempt to restart the private database.
const longestPause = 30 * time.Second

// KeepUp restarts the private database whenever it dies, for example killed when memory is short, until
// ctx ends. It keeps its address, so waiting clients reconnect. Nothing else may use or close db's
// server meanwhile.
func (db *Database) KeepUp(ctx context.Context) {
	if db.Private {
		keepAlive(ctx, func() bool {
			return db.server.Alive()
		}, db.revive, db.Log.With(zap.String("its_log", db.server.LogFile())))
	}
}

// keepAlive checks every second and calls revive when alive is false. It retries without limit after
// growing pauses, so that the log does not fill a full disk.
func keepAlive(ctx context.Context, alive func() bool, revive func(context.Context) error, log *zap.Logger) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	pause := time.Duration(0) // after the last failure; 0: no failure since it was alive
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
			log.Warn("the private Postgres has died, restarting it")
		} else if time.Now().Before(next) {
			continue
		}
		if err := revive(ctx); err != nil && ctx.Err() == nil {
			pause = min(max(2*pause, lookEvery), longestPause)
			next = time.Now().Add(pause)
			log.Error("could not restart the private Postgres", zap.Error(err), zap.Duration("tried_again_in", pause))
		}
	}
}

func (db *Database) revive(ctx context.Context) error {
	server, err := pgdev.Open(ctx, db.private)
	if err != nil {
		return err
	}
	// Release the dead server's share only now: otherwise another process could stop the server in
	// between.
	dead := db.server
	db.server = server
	db.Log.Info("restarted the private Postgres")
	return dead.Close(ctx)
}
