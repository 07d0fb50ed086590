package app

import (
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
)

// A workerStore has all storage methods that a worker uses.
type workerStore struct {
	*operate.Store
	*journals
	*leases
}

type (
	journals = journal.Store
	leases   = grants.Store
)

func newWorkerStore(store *operate.Store) *workerStore {
	return &workerStore{store, journal.New(store.DB), grants.New(store.DB)}
}
