package toolrun

import (
	"sync"

	"turnkeeper"
)

// A Meter adds up the usage of the model calls of one tool call. It is safe for concurrent
// use.
type Meter struct {
	mu   sync.Mutex
	used turnkeeper.Usage
}

// Add adds the usage of a model call.
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
