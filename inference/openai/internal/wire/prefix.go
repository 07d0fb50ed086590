package wire

import (
	"slices"

	"turnkeeper/inference"
	"turnkeeper/internal/kept"
)

// Prefixes keeps how the messages of the newest request of each conversation were written, because the next request
// begins with them. T is what a renderer needs to go on after them; it is never changed. The zero value is empty.
type Prefixes[T any] struct {
	all kept.Map[prefixKey, prefix[T]]
}

// maxPrefixes is about the number of bytes that a Prefixes keeps.
const maxPrefixes = 8 << 20

type prefixKey struct {
	conversation string // see inference.Request.CacheKey
	settings     any    // everything else that the written messages depend on, comparable
}

type prefix[T any] struct {
	messages []inference.Message // of the request, which nobody changes
	written  T
}

// Of returns what was written of the first n messages of a request. n is 0 if nothing is kept of its conversation, or
// only messages that it does not begin with. settings is a comparable value with everything else that the text of
// messages depends on.
func (p *Prefixes[T]) Of(req inference.Request, settings any) (written T, n int) {
	known := p.all.Get(prefixKey{req.CacheKey, settings})
	if !begins(req.Messages, known.messages) {
		return written, 0
	}
	return known.written, len(known.messages)
}

// begins reports whether messages begin with others. The requests of a conversation usually share their memory, so that
// nothing has to be compared.
func begins(messages, with []inference.Message) bool {
	n := len(with)
	if n == 0 || n > len(messages) {
		return n == 0
	}
	return &messages[0] == &with[0] || slices.EqualFunc(messages[:n], with, inference.Message.Equal)
}

// Keep keeps what was written of the messages of a request, which takes size bytes, in place of what was kept of its
// conversation. It keeps nothing for a request without a CacheKey, or if this is more than a quarter of what it keeps.
func (p *Prefixes[T]) Keep(req inference.Request, settings any, written T, size int) {
	if req.CacheKey != "" {
		p.all.Put(prefixKey{req.CacheKey, settings}, prefix[T]{req.Messages, written}, size, maxPrefixes)
	}
}
