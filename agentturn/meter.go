package agentturn

import (
	"sync"

	"turnkeeper"
)

// A meter adds up what the model calls made for one tool call take. It may be
// used by several goroutines.
type meter struct {
	mu   sync.Mutex
	used turnkeeper.Usage
}

func (m *meter) add(u turnkeeper.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = m.used.Add(u)
}

func (m *meter) read() turnkeeper.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}
