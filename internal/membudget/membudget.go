// Package membudget bounds the memory that the results of tools hold together in a process while they
// are read, decoded, cleaned and stored. A result that finds no room waits, within its call's context.
//
// Results wait for each other without a deadlock, although each takes its memory in steps, because its
// size is known only at its end:
//
//   - The budget has a reserve of the size of the largest result. One account at a time, the favoured
//     one, may use the reserve, so at least its result can always be read to its end.
//   - An account has all results of one turn. A turn may record a result only after another one of its
//     calls has ended, so a result that was read to its end does not keep the turn's next one waiting
//     for the reserve. One result is read into the reserve at a time.
//   - What reads answers for several calls, in the order in which a server sends them, is a reader. It may
//     use the reserve whenever no other result is read into it, because the favoured turn may wait for an
//     answer behind the one that is read.
//   - Whoever waits for room is served in order. When the favoured account needs the reserve no more, or
//     what it holds fits into the rest of the budget, the first that waits becomes the favoured one.
//
// So the results hold at most the budget and, beyond it, the results that were read to their end in the
// reserve: those of one turn, and the answers that readers read meanwhile.
package membudget

import (
	"context"
	"slices"
	"sync"
)

// A Budget is shared by all accounts of a process. It is safe for concurrent use, and so are its
// accounts and leases. A nil Budget has no limit.
type Budget struct {
	largest int64

	mu       sync.Mutex
	free     int64 // of the part that is not the reserve; negative if results are larger than was known
	favoured *Account
	reading  *Lease // the lease of the favoured account that grows into the reserve; nil: none
	waiting  []*waiter
	held     int64
}

// New returns a budget of size bytes. No lease counts for more than largest bytes. A size below
// largest is raised to it.
func New(size, largest int64) *Budget {
	return &Budget{largest: largest, free: max(size-largest, 0)}
}

// Use is what a budget is used for now.
type Use struct {
	Held    int64 // bytes
	Waiting int   // results
}

// Use returns the current use. A nil budget has none.
func (b *Budget) Use() Use {
	if b == nil {
		return Use{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return Use{Held: b.held, Waiting: len(b.waiting)}
}

// An Account has the leases of the calls that may wait for each other: those of one turn.
type Account struct {
	budget *Budget
	reader bool
	leases []*Lease
}

// Account returns a new account.
func (b *Budget) Account() *Account { return &Account{budget: b} }

// Reader returns a new account of a reader, which reads answers before it knows whose they are and transfers
// them to the leases of their calls.
func (b *Budget) Reader() *Account { return &Account{budget: b, reader: true} }

// Close releases all leases of the account. Later leases and growth fail.
func (a *Account) Close() {
	b := a.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range slices.Clone(a.leases) {
		b.release(l)
	}
	b.serve()
}

// A Lease is the memory of one result. A nil Lease has no limit.
type Lease struct {
	account *Account
	pool    int64 // bytes of the budget
	reserve int64 // bytes of the reserve
	over    bool  // it was released
}

// Lease returns a lease of no bytes. The caller must release it, or close the account.
func (a *Account) Lease() *Lease {
	if a == nil || a.budget == nil {
		return nil
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	l := &Lease{account: a}
	a.leases = append(a.leases, l)
	return l
}

type waiter struct {
	lease *Lease
	bytes int64
	given chan struct{}
}

// Grow adds bytes to the lease. It waits until there is room, or returns the cause of ctx. After
// Release it adds nothing.
func (l *Lease) Grow(ctx context.Context, bytes int64) error {
	if l == nil || bytes <= 0 {
		return nil
	}
	b := l.account.budget
	b.mu.Lock()
	bytes = min(bytes, b.largest-l.pool-l.reserve)
	if l.over || bytes <= 0 || b.favours(l) && b.fromReserve(l, bytes) || len(b.waiting) == 0 && b.give(l, bytes) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{lease: l, bytes: bytes, given: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.serve()
	}
	return context.Cause(ctx)
}

// FreeBytes is the number of bytes of each result that are not counted, so that small results never wait.
const FreeBytes = 64 << 10

// growStep is the minimum by which GrowTo grows, so that a long result does not ask for each piece.
const growStep = 1 << 20

// GrowTo grows the lease to what a result of this many bytes of memory counts for, and some more. It
// waits as Grow.
func (l *Lease) GrowTo(ctx context.Context, bytes int64) error {
	if l == nil || bytes <= FreeBytes {
		return nil
	}
	l.account.budget.mu.Lock()
	less := bytes - l.pool - l.reserve
	l.account.budget.mu.Unlock()
	if less <= 0 {
		return nil
	}
	return l.Grow(ctx, max(less, growStep))
}

// Transfer moves what the lease holds to another one, without a wait. If to is nil, the lease shrinks
// to 0.
func (l *Lease) Transfer(to *Lease) {
	if to == nil || l == nil {
		l.Shrink(0)
		return
	}
	b := l.account.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if to.over {
		b.shrink(l, 0)
		b.serve()
		return
	}
	if b.reading == l { // the account of to needs the reserve now
		b.reading = to
	}
	if b.favoured == l.account && l.reserve > 0 {
		b.favoured = to.account
	}
	to.pool, to.reserve = to.pool+l.pool, to.reserve+l.reserve
	l.pool, l.reserve = 0, 0
	b.serve()
}

// Shrink reduces the lease to at most bytes.
func (l *Lease) Shrink(bytes int64) {
	if l == nil {
		return
	}
	b := l.account.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shrink(l, bytes)
	b.serve()
}

// Settle says that the result was read to its end and is in memory with this many bytes: it counts for
// these without a wait, will not grow, and another one of the account may be read.
func (l *Lease) Settle(bytes int64) {
	if l == nil {
		return
	}
	b := l.account.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes <= FreeBytes {
		bytes = 0
	}
	b.shrink(l, bytes)
	if more := bytes - l.pool - l.reserve; more > 0 && !l.over {
		l.pool, b.free, b.held = l.pool+more, b.free-more, b.held+more
	}
	if b.reading == l {
		b.reading = nil
	}
	b.serve()
}

// Release ends the lease. It may be called again.
func (l *Lease) Release() {
	if l == nil {
		return
	}
	b := l.account.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(l)
	b.serve()
}

// The methods below are called with b.mu held.

// favours reports whether the lease may use the reserve now.
func (b *Budget) favours(l *Lease) bool {
	return (b.favoured == l.account || l.account.reader) && (b.reading == nil || b.reading == l)
}

func (b *Budget) fromReserve(l *Lease, bytes int64) bool {
	l.reserve, b.reading, b.held = l.reserve+bytes, l, b.held+bytes
	return true
}

// give gives bytes to a lease that is the first to wait, or returns false.
func (b *Budget) give(l *Lease, bytes int64) bool {
	switch {
	case bytes <= b.free:
		l.pool, b.free, b.held = l.pool+bytes, b.free-bytes, b.held+bytes
		return true
	case b.favoured == nil:
		b.favoured = l.account
	case !b.favours(l):
		return false
	}
	return b.fromReserve(l, bytes)
}

// serve gives room to those who wait.
func (b *Budget) serve() {
	for b.serveOne() {
	}
}

func (b *Budget) serveOne() bool {
	b.freeReserve()
	for i, w := range b.waiting {
		// Those after the first get the reserve only if their account is the favoured one.
		if i == 0 && b.give(w.lease, w.bytes) || b.favours(w.lease) && b.fromReserve(w.lease, w.bytes) {
			b.waiting = slices.Delete(b.waiting, i, i+1)
			close(w.given)
			return true
		}
	}
	return false
}

// freeReserve moves what the favoured account holds to the rest of the budget, if that has room.
func (b *Budget) freeReserve() {
	if b.favoured == nil {
		return
	}
	used := int64(0)
	for _, l := range b.favoured.leases {
		used += l.reserve
	}
	if used > max(b.free, 0) {
		return
	}
	for _, l := range b.favoured.leases {
		l.pool, l.reserve = l.pool+l.reserve, 0
	}
	b.free, b.favoured = b.free-used, nil
	switch {
	case b.reading == nil || b.reading.reserve == 0: // it was of the favoured account, or holds nothing any more
		b.reading = nil
	default:
		b.favoured = b.reading.account
	}
}

func (b *Budget) shrink(l *Lease, to int64) {
	less := max(l.pool+l.reserve-max(to, 0), 0)
	b.held -= less
	fromReserve := min(less, l.reserve)
	l.reserve -= fromReserve
	l.pool -= less - fromReserve
	b.free += less - fromReserve
}

func (b *Budget) release(l *Lease) {
	b.shrink(l, 0)
	l.over = true
	if b.reading == l {
		b.reading = nil
	}
	l.account.leases = slices.DeleteFunc(l.account.leases, func(o *Lease) bool { return o == l })
	b.waiting = slices.DeleteFunc(b.waiting, func(w *waiter) bool {
		if w.lease != l {
			return false
		}
		close(w.given)
		return true
	})
}

type leaseKey struct{}

// With returns a context that carries the lease of a call.
func With(ctx context.Context, l *Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// Of returns the lease of the call that the context belongs to; nil: there is none.
func Of(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}
