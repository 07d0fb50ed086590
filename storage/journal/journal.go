// Package journal reads and writes the journals of turns, with their outputs, drafts, detached calls
// and sub-agents, and the notes and extractions that tools keep.
package journal

import (
	"turnkeeper/storage"
	"turnkeeper/storage/internal/pg"
)

// A Store reads and writes the journals of all turns.
type Store struct {
	db    *pg.DB
	group *group
	parts knownParts
	pasts pasts
}

// New returns the store of an open database.
func New(db *storage.DB) *Store { return &Store{db: db.Core(), group: &group{db: db.Core()}} }
