package shell

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/fault"
)

// A Keeper keeps the databases that commands open, for later commands of this process with the same settings. Only
// tests have one, which run many commands: opening connections and planning statements takes longer than most commands.
type Keeper struct {
	mu   sync.Mutex
	open map[string]*database.Database // by URL
}

type keeperKey struct{}

// With returns a context whose commands use the Keeper. nil: each opens its own database.
func (k *Keeper) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, keeperKey{}, k)
}

// keeperOf returns the Keeper of a context, or nil.
func keeperOf(ctx context.Context) *Keeper {
	k, _ := ctx.Value(keeperKey{}).(*Keeper)
	return k
}

// keptConns is the pool size of a kept database: commands that run at the same time do not wait for each other.
const keptConns = 200

// database returns the open database of cfg. A private one is not kept, because it ends with its last user.
func (k *Keeper) database(ctx context.Context, cfg *config.Config, log *zap.Logger, fault fault.Hook) (
	db *database.Database, kept bool, err error) {
	if k == nil || !cfg.DatabaseURL.IsSet() {
		db, err = database.Open(ctx, cfg, log, nil, fault)
		return db, false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	url := cfg.DatabaseURL.Reveal()
	if db = k.open[url]; db != nil {
		if db.Store.Pool().Ping(ctx) != nil { // a test has ended the connections
			db.Store.Pool().Reset()
		}
		return db, true, nil
	}
	more := *cfg
	more.DBPoolSize = keptConns
	if db, err = database.Open(ctx, &more, zap.NewNop(), nil, fault); err != nil { // log is that of one command
		return nil, false, err
	}
	if k.open == nil {
		k.open = map[string]*database.Database{}
	}
	k.open[url] = db
	return db, true, nil
}

// Close closes the databases. No command may run.
func (k *Keeper) Close(ctx context.Context) (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, db := range k.open {
		err = errors.Join(err, db.Close(ctx))
	}
	k.open = nil
	return err
}
