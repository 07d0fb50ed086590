package storage

import (
	"io/fs"
	"time"
)

// SetMigrations gives the store the migrations of another program.
func (s *DB) SetMigrations(files fs.FS) { s.files = files }

// SetMigrationWaits sets how long a migration waits for a lock, and pauses then.
func (s *DB) SetMigrationWaits(lock, pause time.Duration) {
	s.migrationLockTime, s.migrationPause = lock, pause
}

// SetLimit sets how long the notifier's connection may take to answer. It is called before
// Run.
func (n *Notifier) SetLimit(d time.Duration) { n.limit = d }
