// Package kept has what a process keeps of earlier work to save doing it again: a map that is bounded by bytes, and
// lists that grow without being copied.
package kept

import "sync"

// A Map keeps values up to a number of bytes. When it is full it evicts any: what takes turns is read in the same order
// each time, so evicting the oldest first would evict each value shortly before it is read. Small values, which are
// made again in little time, have a part of the bytes for themselves: many short conversations take little memory, and
// evict no long ones. The zero value is empty. It is safe for concurrent use.
type Map[K comparable, V any] struct {
	mu           sync.Mutex
	small, large class[K, V]
}

// A class holds the small values of a Map, or the others.
type class[K comparable, V any] struct {
	all   map[K]sized[V]
	bytes int
}

type sized[V any] struct {
	value V
	bytes int
}

// Shares of a Map's limit: a value that takes less than smallest is small, and all of these take at most forSmall.
// With a limit of 8 MiB these are 32 KiB and 1 MiB.
const smallest, forSmall = 256, 8

// Get returns the value of a key, or the zero value if none is kept.
func (m *Map[K, V]) Get(key K) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found, ok := m.small.all[key]; ok {
		return found.value
	}
	return m.large.all[key].value
}

// Put stores a value of about the given size in bytes under a key, and evicts others until the Map holds at most limit
// bytes. A value larger than a quarter of limit is not stored; the key's old value is removed in any case.
func (m *Map[K, V]) Put(key K, value V, bytes, limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.small.remove(key)
	m.large.remove(key)
	switch {
	case bytes < limit/smallest:
		m.small.put(key, value, bytes, limit/forSmall)
	case bytes <= limit/4:
		m.large.put(key, value, bytes, limit-limit/forSmall)
	}
}

func (c *class[K, V]) put(key K, value V, bytes, limit int) {
	if c.all == nil {
		c.all = map[K]sized[V]{}
	}
	for other := range c.all { // in random order
		if c.bytes+bytes <= limit {
			break
		}
		c.remove(other)
	}
	c.all[key] = sized[V]{value, bytes}
	c.bytes += bytes
}

func (c *class[K, V]) remove(key K) {
	c.bytes -= c.all[key].bytes
	delete(c.all, key)
}
