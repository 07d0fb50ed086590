package redact

import (
	"slices"
	"sync"
	"sync/atomic"
)

// MaxRegistered bounds what a Register holds, in bytes.
const MaxRegistered = 64 << 10

// A Register holds secrets that a process comes by while it runs, such as tokens
// that it was given for a while. Maskers that are made with it mask them from then
// on. Where they come to more than MaxRegistered bytes, the oldest are dropped:
// tokens that were replaced long ago. It is safe for concurrent use, and its zero
// value is empty.
type Register struct {
	version atomic.Int64 // of values
	mu      sync.Mutex
	values  []string // oldest first
	size    int      // of all
}

// Add has the secret masked from now on. One that is there becomes the newest.
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
