package prompt

import (
	"crypto/sha256"
	"sync"
)

// Bounds of a Cache: a text below leastCached is counted as soon as it is
// looked up.
const (
	leastCached = 256 // bytes
	mostCached  = 20_000
)

// A Cache keeps the counts of tokenizers for all turns of a process: a
// conversation is counted once, and not in each of its turns. It keeps hashes
// and no text. It is safe for concurrent use.
type Cache struct {
	mu     sync.Mutex
	counts map[cacheKey]int
}

type cacheKey struct {
	model string
	json  bool
	sum   [sha256.Size]byte
}

// count is the count of a text, by f where it is not known.
func (c *Cache) count(model string, key memoKey, f func() int) int {
	if c == nil || len(key.text) < leastCached {
		return f()
	}
	cached := cacheKey{model, key.json, sha256.Sum256([]byte(key.text))}
	c.mu.Lock()
	n, known := c.counts[cached]
	c.mu.Unlock()
	if known {
		return n
	}
	n = f()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil || len(c.counts) >= mostCached {
		c.counts = map[cacheKey]int{}
	}
	c.counts[cached] = n
	return n
}
