package storage

import (
	"io/fs"
	"time"
)

// SetMigrations gives the store the migrations of another program.
func (s *Store) SetMigrations(files fs.FS) { s.files = files }

// SetMigrationWaits sets how long a migration waits for a lock, and pauses then.
func (s *Store) SetMigrationWaits(lock, pause time.Duration) {
	s.migrationLockTime, s.migrationPause = lock, pause
}

// SetLooksAt sets how many messages or turns one search looks at.
func (s *Store) SetLooksAt(n int32) { s.looksAt = n }

// SetLimit sets how long the bell's connection may take to answer. It is called before
// Run.
func (b *Bell) SetLimit(d time.Duration) { b.limit = d }
