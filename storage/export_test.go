package storage

import (
	"io/fs"
	"time"
)

// MigrationLock is the advisory lock of migrations.
const MigrationLock = int64(migrationLock)

// SetMigrations replaces the migrations of the store with those of another program. The store must not be one that
// another test uses later: see newFresh.
func (s *DB) SetMigrations(files fs.FS) { s.files = files }

// SetMigrationWaits sets the lock timeout of a migration, and the pause before it is retried.
func (s *DB) SetMigrationWaits(lock, pause time.Duration) {
	s.migrationLockTime, s.migrationPause = lock, pause
}

// SetLimit sets the timeout for answers on the notifier's connection. Call it before Run.
func (n *Notifier) SetLimit(d time.Duration) { n.limit = d }
