package wire

import (
	"slices"
	"sync"

	"turnkeeper/inference"
)

// Prefixes keeps how the messages of the newest request of each conversation were written, because the next request
// begins with them. T is what a renderer needs to go on after them; it is never changed. It is safe for concurrent use.
type Prefixes[T any] struct {
	mu    sync.Mutex
	all   map[prefixKey]prefix[T]
	bytes int
}

// maxPrefixes is about the number of bytes that a Prefixes keeps.
const maxPrefixes = 8 << 20

type prefixKey struct {
	conversation string // see inference.Request.CacheKey
	settings     any    // everything else that the written messages depend on, comparable
}

type prefix[T any] struct {
	messages []inference.Message
	written  T
	size     int // bytes
}

// Of returns what was written of the first n messages of a request. n is 0 if nothing is kept of its conversation, or
// only messages that it does not begin with. settings is a comparable value with everything else that the text of
// messages depends on.
func (p *Prefixes[T]) Of(req inference.Request, settings any) (written T, n int) {
	p.mu.Lock()
	known := p.all[prefixKey{req.CacheKey, settings}]
	p.mu.Unlock()
	n = len(known.messages)
	if n > len(req.Messages) || !slices.EqualFunc(known.messages, req.Messages[:n], sameMessage) {
		return written, 0
	}
	return known.written, n
}

// Keep keeps what was written of the messages of a request, which takes size bytes, in place of what was kept of its
// conversation. It keeps nothing for a request without a CacheKey, or if this is more than a quarter of what it keeps.
func (p *Prefixes[T]) Keep(req inference.Request, settings any, written T, size int) {
	if req.CacheKey == "" || size > maxPrefixes/4 {
		return
	}
	key := prefixKey{req.CacheKey, settings}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[prefixKey]prefix[T]{}
	}
	p.remove(key)
	for other := range p.all { // in random order: conversations may take turns
		if p.bytes+size <= maxPrefixes {
			break
		}
		p.remove(other)
	}
	p.all[key] = prefix[T]{slices.Clone(req.Messages), written, size}
	p.bytes += size
}

func (p *Prefixes[T]) remove(key prefixKey) {
	p.bytes -= p.all[key].size
	delete(p.all, key)
}

// sameMessage compares texts that usually are the same memory, which costs nothing.
func sameMessage(a, b inference.Message) bool {
	return a.Role == b.Role && a.Text == b.Text && a.CallID == b.CallID && a.Tool == b.Tool &&
		a.RawProvider == b.RawProvider && string(a.Raw) == string(b.Raw) && slices.Equal(a.Calls, b.Calls)
}
