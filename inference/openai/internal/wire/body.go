package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net"
	"net/http"
	"slices"

	"turnkeeper/internal/kept"
)

// A Body is the body of a request, in parts that are sent one after the other. It never changes.
type Body struct {
	parts  [][]byte
	sha256 string
}

// WholeBody returns a body in one part.
func WholeBody(text []byte) Body {
	sum := sha256.Sum256(text)
	return Body{[][]byte{text}, hex.EncodeToString(sum[:])}
}

// SHA256 returns the hash of the body in hexadecimal.
func (b Body) SHA256() string { return b.sha256 }

// Len returns the number of bytes.
func (b Body) Len() (n int) {
	for _, part := range b.parts {
		n += len(part)
	}
	return n
}

// Bytes returns a copy of the body.
func (b Body) Bytes() []byte { return slices.Concat(b.parts...) }

// SetIn makes it the body of a request.
func (b Body) SetIn(r *http.Request) {
	r.ContentLength = int64(b.Len())
	r.GetBody = func() (io.ReadCloser, error) {
		unread := net.Buffers(slices.Clone(b.parts))
		return io.NopCloser(&unread), nil // io.MultiReader would allocate 32 KiB when its end is sought
	}
	r.Body, _ = r.GetBody() // it never fails
}

// A Stem is a body up to the end of its last message, with which that of the next request in the conversation begins.
// The messages share their memory with those of the requests before, and are hashed once. The zero value is that of a
// conversation without a request. A Stem never changes.
type Stem struct {
	head     string          // what stands before the list of messages
	messages kept.List[byte] // the list without its end
	sum      hash.Hash       // of both; nil: of nothing
}

// Grow returns the stem of a request with more messages. head stands before the list. more is what follows in the list,
// with the bracket that begins it if s is empty.
func (s Stem) Grow(head, more []byte) Stem {
	next := Stem{head: string(head), messages: s.messages.Append(more...)}
	if sum, ok := cloneOf(s.sum); ok && s.head == next.head {
		next.sum = sum
		_, _ = next.sum.Write(more)
		return next
	}
	next.sum = sha256.New()
	_, _ = next.sum.Write(head)
	_, _ = next.sum.Write(next.messages.Items())
	return next
}

// cloneOf returns a copy of a hash that can be written to. ok is false if there is none: FIPS modules may have none.
func cloneOf(h hash.Hash) (_ hash.Hash, ok bool) {
	cloner, ok := h.(hash.Cloner)
	if !ok {
		return nil, false
	}
	clone, err := cloner.Clone()
	return clone, err == nil
}

// Body returns the body that ends with tail.
func (s Stem) Body(tail []byte) Body {
	body := Body{parts: [][]byte{[]byte(s.head), s.messages.Items(), tail}}
	sum, ok := cloneOf(s.sum)
	if !ok {
		return WholeBody(body.Bytes())
	}
	_, _ = sum.Write(tail)
	body.sha256 = hex.EncodeToString(sum.Sum(nil))
	return body
}

// Len returns the number of bytes of the messages.
func (s Stem) Len() int { return s.messages.Len() }

// A Gap marks where the list of messages goes in an object. Append writes only the list's closing bracket there.
type Gap struct{ at int }

// Around returns what stands before and after the list in what it was appended to.
func (g *Gap) Around(whole []byte) (before, after []byte) { return whole[:g.at], whole[g.at:] }
