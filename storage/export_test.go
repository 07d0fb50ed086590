package storage

import "io/fs"

// SetMigrations gives the store the migrations of another program.
func (s *Store) SetMigrations(files fs.FS) { s.files = files }
