// Package journal reads and writes the journals of turns: what a worker loads, appends and reads back,
// with the outputs, drafts, detached calls and sub-agents that belong to them, and what else tools
// keep.
package journal

import (
	"turnkeeper/storage"
	"turnkeeper/storage/internal/pg"
)

// A Store holds the journals of all turns.
type Store struct{ db *pg.DB }

// New returns the journals of a database.
func New(db *storage.DB) *Store { return &Store{db.Core()} }
