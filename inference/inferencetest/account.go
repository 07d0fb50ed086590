package inferencetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// An Account applies two rules of providers to the bodies of requests, over any Wire. Reasoning is signed over the
// tools, the system prompt and all messages before it, as they were sent, and a request that repeats it after anything
// else, or without the rest of its answer, is refused. A prompt cache holds the beginning of each request that was
// answered, at most up to a cache mark where the API has marks. Marks themselves are no part of what is compared.
//
// Answers say in their usage what the cache gave. A token is four bytes. The zero value is ready. It is safe for
// concurrent use.
type Account struct {
	mu       sync.Mutex
	issued   map[string]issue // by signature
	cached   map[digest]bool  // of the beginnings of answered requests
	bills    []Bill
	refusals []string
}

// An issue is a signature that stands in an answer.
type issue struct {
	before digest
	answer []string // the pieces of the answer, as piece.answered
}

// A Bill is what the input of an answered request costs, in bytes of what the model reads.
type Bill struct {
	Recorded

	Input   int // all of it
	Cached  int // read from the cache
	Written int // written to the cache
}

// Tokens returns a number of tokens.
func (b Bill) Tokens() (input, cached, written int64) {
	return int64(b.Input / bytesPerToken), int64(b.Cached / bytesPerToken), int64(b.Written / bytesPerToken)
}

const (
	bytesPerToken = 4
	// maxLookback is the number of blocks before a cache mark at which the Messages API looks for what it has cached.
	maxLookback = 20
)

// Say returns the reply with an answer, whose thinking is signed, or the refusal of the request.
func (acc *Account) Say(a Spoken) Reply {
	return func(x *Exchange) {
		pieces := x.wire.pieces(x.Body)
		bound, all := beginningsOf(x.Chat().Model, pieces)
		acc.mu.Lock()
		refusal := acc.refusal(pieces, bound)
		if refusal != "" {
			acc.refusals = append(acc.refusals, refusal)
			acc.mu.Unlock()
			Fault(http.StatusBadRequest, "invalid_request_error", refusal)(x)
			return
		}
		bill := acc.charge(x.wire, pieces, all)
		bill.Recorded = x.Recorded
		acc.bills = append(acc.bills, bill)
		a.In, a.Cached, a.Written = bill.Tokens()
		a.Out = max(a.Out, 1)
		a = x.named(a)
		if a.Thinking != "" {
			a.Signature = acc.sign(x.wire, a, bound[len(pieces)])
		}
		acc.mu.Unlock()
		Say(a)(x)
	}
}

// refusal returns why a request is refused, or "". acc is locked.
func (acc *Account) refusal(pieces []piece, bound []digest) string {
	for i, p := range pieces {
		if p.signature == "" {
			continue
		}
		of, known := acc.issued[p.signature]
		var answer []string
		for _, p := range pieces[i:min(len(pieces), i+len(of.answer))] {
			answer = append(answer, p.answered)
		}
		fault := ""
		switch {
		case !known:
			fault = "It was signed by nobody"
		case of.before != bound[i]:
			fault = "The block is bound to a different conversation"
		case !slices.Equal(answer, of.answer):
			fault = fmt.Sprintf("The answer of the block was changed from %q to %q", of.answer, answer)
		}
		if fault != "" {
			return fmt.Sprintf("messages.%d: Invalid `signature` in `thinking` block. %s", i, fault)
		}
	}
	return ""
}

// sign returns the signature of an answer's thinking. acc is locked.
func (acc *Account) sign(w *Wire, a Spoken, before digest) string {
	if acc.issued == nil {
		acc.issued = map[string]issue{}
	}
	number := sha256.Sum256(fmt.Appendf(before[:], "%d", len(acc.issued)))
	a.Signature = hex.EncodeToString(number[:])
	of := issue{before: before}
	// No client can repeat arguments that are not an object: what stands in their place is its choice.
	whole := !slices.ContainsFunc(a.Calls, func(c Call) bool {
		var arguments map[string]json.RawMessage
		return json.Unmarshal([]byte(c.Arguments), &arguments) != nil
	})
	for _, p := range w.pieces([]byte(w.echo(a))) {
		if whole && p.answered != "" {
			of.answer = append(of.answer, p.answered)
		}
	}
	acc.issued[a.Signature] = of
	return a.Signature
}

// charge returns what the cache gives to a request, and puts the request into it. acc is locked.
func (acc *Account) charge(w *Wire, pieces []piece, all []digest) (b Bill) {
	ends := make([]bool, len(pieces)) // after which the cache may hold a beginning
	looks := slices.Clone(ends)       // after which it is looked for
	for i, p := range pieces {
		ends[i] = !w.marks || p.marked
		for j := i; ends[i] && j >= max(0, i-maxLookback); j-- {
			looks[j] = true
		}
	}
	last := 0
	for i, p := range pieces {
		b.Input += len(p.text)
		if looks[i] && acc.cached[all[i+1]] {
			b.Cached = b.Input
		}
		if ends[i] {
			last = b.Input
		}
	}
	if w.marks {
		b.Written = max(0, last-b.Cached)
	}
	if acc.cached == nil {
		acc.cached = map[digest]bool{}
	}
	for i := range pieces {
		if ends[i] {
			acc.cached[all[i+1]] = true
		}
	}
	return b
}

// Bills returns what the answered requests cost, in the order of the answers.
func (acc *Account) Bills() []Bill {
	acc.mu.Lock()
	defer acc.mu.Unlock()
	return slices.Clone(acc.bills)
}

// Refusals returns why requests were refused, in order.
func (acc *Account) Refusals() []string {
	acc.mu.Lock()
	defer acc.mu.Unlock()
	return slices.Clone(acc.refusals)
}

// beginningsOf returns the digests of the beginnings of a request to a model: element i is that of what stands before
// piece i. bound is without what reasoning is not signed over.
func beginningsOf(model string, pieces []piece) (bound, all []digest) {
	first := sha256.Sum256([]byte(model))
	bound, all = append(bound, first), append(all, first)
	for i, p := range pieces {
		next := bound[i]
		if !p.unbound {
			next = sha256.Sum256(append(next[:], p.text...))
		}
		before := all[i]
		bound, all = append(bound, next), append(all, sha256.Sum256(append(before[:], p.text...)))
	}
	return bound, all
}

// Extends reports whether what the model reads of a request is what it read of one before, byte for byte, and more.
// Cache marks are not compared. shared is the number of bytes at the beginning that are the same.
func (r Recorded) Extends(before Recorded) (extends bool, shared int) {
	pieces, now := before.wire.pieces(before.Body), r.wire.pieces(r.Body)
	for i, p := range pieces {
		if before.wire != r.wire || i == len(now) || now[i].text != p.text {
			return false, shared
		}
		shared += len(p.text)
	}
	return true, shared
}
