package env

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// A storeKeeper keeps the store that an Env reads with. A program would open a connection for each command, which
// loads the catalogs and plans each statement again: that takes longer than the reads.
type storeKeeper struct {
	url string

	mu    sync.Mutex
	store *operate.Store // nil: not opened
}

// use calls f with the store. It opens the store on first use, and again if its connection is gone.
func (k *storeKeeper) use(ctx context.Context, f func(*operate.Store) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.store != nil && mark(ctx, k.store) != nil {
		k.closeLocked()
	}
	if k.store == nil {
		store, err := operate.Open(ctx, storage.Options{URL: k.url, MaxConns: 1})
		if err != nil {
			return err
		}
		k.store = store
		if err := mark(ctx, store); err != nil {
			return err
		}
	}
	return f(k.store)
}

// mark marks the store's connection as the test's own, because some tests count or end those of the product. The pool
// may have replaced it since the last use.
func mark(ctx context.Context, store *operate.Store) error {
	_, err := store.Pool().Exec(ctx, "set application_name = '"+ApplicationName+"'")
	return err
}

func (k *storeKeeper) pools() []*pgxpool.Pool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.store == nil {
		return nil
	}
	return storagetest.PoolsOf(k.store.DB)
}

func (k *storeKeeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closeLocked()
}

func (k *storeKeeper) closeLocked() {
	if k.store != nil {
		k.store.Close()
		k.store = nil
	}
}

// show returns what "turnctl -o json show" prints.
func (k *storeKeeper) show(ctx context.Context, turn int64) ([]byte, error) {
	var view operate.TurnView
	err := k.use(ctx, func(store *operate.Store) (err error) {
		view, err = store.ViewTurn(ctx, turnkeeper.TurnID(turn))
		return err
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(views.OfWholeTurn(view))
}

// check returns what "turnctl check" finds.
func (k *storeKeeper) check(ctx context.Context, atRest bool) ([]operate.Promise, error) {
	var promises []operate.Promise
	err := k.use(ctx, func(store *operate.Store) (err error) {
		if promises, err = store.Check(ctx, atRest); err != nil {
			return err
		}
		requests, err := setup.CheckRequests(ctx, store)
		promises = append(promises, requests)
		return err
	})
	return promises, err
}
