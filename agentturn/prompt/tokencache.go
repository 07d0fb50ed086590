package prompt

import (
	"crypto/sha256"
	"sync"
)

// Bounds of a Cache. Counting a text shorter than minCachedBytes is as fast as hashing it.
const (
	minCachedBytes = 256
	maxCached      = 20_000 // entries
)

// A Cache holds the counts of tokenizers for all turns of a process, so that a conversation
// is not counted again in each turn. It holds hashes of texts, not the texts. It is safe
// for concurrent use.
type Cache struct {
	mu     sync.Mutex
	counts map[cacheKey]int
}

type cacheKey struct {
	model string
	json  bool
	sum   [sha256.Size]byte
}

// count returns the cached count of a text, or calls f and caches its result.
func (c *Cache) count(model string, key memoKey, f func() int) int {
	if c == nil || len(key.text) < minCachedBytes {
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
	if c.counts == nil || len(c.counts) >= maxCached {
		c.counts = map[cacheKey]int{}
	}
	c.counts[cached] = n
	return n
}
