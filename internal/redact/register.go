package redact

import (
	"slices"
	"sync"
	"sync/atomic"
)

// MaxRegistered is the maximum size of a Register in bytes.
const MaxRegistered = 64 << 10

// A Register holds secrets that a process receives while it runs, such as short-lived tokens. Maskers
// created with it mask them from then on. Above MaxRegistered bytes the oldest secrets, which have expired
// long ago, are dropped. It is safe for concurrent use. The zero value is empty.
type Register struct {
	version atomic.Int64 // of values
	mu      sync.Mutex
	values  []string // oldest first
	size    int      // of all
}

// Add adds a secret. A known one becomes the newest.
func (r *Register) Add(secret string) {
	if secret == "" || len(secret) > MaxRegistered {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.values, secret); i >= 0 {
		r.values = append(slices.Delete(r.values, i, i+1), secret)
		return
	}
	r.values = append(r.values, secret)
	for r.size += len(secret); r.size > MaxRegistered; r.values = r.values[1:] {
		r.size -= len(r.values[0])
	}
	r.version.Add(1)
}

func (r *Register) all() (values []string, version int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.values), r.version.Load()
}
