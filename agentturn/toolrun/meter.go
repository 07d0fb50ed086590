package toolrun

import (
	"sync"

	"turnkeeper"
)

// A Meter adds up what the model calls made for one tool call take. It may be
// used by several goroutines.
type Meter struct {
	mu   sync.Mutex
	used turnkeeper.Usage
}

// Add adds what a call took.
func (m *Meter) Add(u turnkeeper.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = m.used.Add(u)
}

// Used returns the sum.
func (m *Meter) Used() turnkeeper.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}
