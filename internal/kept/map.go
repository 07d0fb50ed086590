// Package kept has what a process keeps of earlier work to save doing it again: a map that is bounded by bytes, and
// lists that grow without being copied.
package kept

import "sync"

// A Map keeps values up to a number of bytes. When it is full it evicts any: what takes turns is read in the same order
// each time, so evicting the oldest first would evict each value shortly before it is read. The zero value is empty. It
// is safe for concurrent use.
type Map[K comparable, V any] struct {
	mu    sync.Mutex
	all   map[K]sized[V]
	bytes int
}

type sized[V any] struct {
	value V
	bytes int
}

// Get returns the value of a key, or the zero value if none is kept.
func (m *Map[K, V]) Get(key K) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[key].value
}

// Put stores a value of about the given size in bytes under a key, and evicts others until the Map holds at most limit
// bytes. A value larger than a quarter of limit is not stored; the key's old value is removed in any case.
func (m *Map[K, V]) Put(key K, value V, bytes, limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(key)
	if bytes > limit/4 {
		return
	}
	if m.all == nil {
		m.all = map[K]sized[V]{}
	}
	for other := range m.all { // in random order
		if m.bytes+bytes <= limit {
			break
		}
		m.remove(other)
	}
	m.all[key] = sized[V]{value, bytes}
	m.bytes += bytes
}

func (m *Map[K, V]) remove(key K) {
	m.bytes -= m.all[key].bytes
	delete(m.all, key)
}
