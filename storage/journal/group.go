package journal

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"turnkeeper/storage/internal/pg"
)

// A group combines the writes of all turns of a process into few transactions. It uses no timer: while
// one transaction is in flight, further writes wait and form the next one. If no transaction is in flight, a
// write is sent at once, alone.
//
// One statement appends the rows of all writes. A write whose turn is fenced fails alone. If someone else has locked
// the turn's row, the write is sent again alone and waits for the lock. If the server rolls back the transaction
// because of another error, each write is sent again alone, so that no turn fails because of another. A write or batch
// that takes longer than lockWait no longer delays the others.
type group struct {
	db      *pg.DB
	mu      sync.Mutex
	busy    bool // a write or a batch is in flight, and has not taken longer than lockWait
	waiting []*member
}

// A member is a write that waits for its turn.
type member struct {
	change *change
	sent   func()
	result chan writeResult // buffered; at most one is sent
}

// A writeResult tells the goroutine of a write how it went.
type writeResult struct {
	err  error
	lead bool // the write was not sent: its goroutine leads
}

const (
	maxBatch = 64
	// lockWait is longer than any function of the schema locks a row, except while it waits for other rows.
	lockWait = 50 * time.Millisecond
)

// errAlone is the result of a write that must be sent again alone.
var errAlone = errors.New("the write was not done with the others")

// write sends a change, alone on the pool or in a batch. If ctx ends while the write is in flight, it is unknown
// whether it was committed.
func (g *group) write(ctx context.Context, pool pg.Sender, c *change, sent func()) error {
	m := g.join(c, sent)
	lead := m == nil
	if m != nil {
		select {
		case a := <-m.result:
			if lead = a.lead; !lead && !errors.Is(a.err, errAlone) {
				return a.err
			}
		case <-ctx.Done():
			g.leave(m)
			return context.Cause(ctx)
		}
	}
	if lead {
		defer g.lead()()
	}
	_, err := send(ctx, pool, []*change{c}, true, sent)
	return err
}

// lead must be called before a write or batch is sent, and the returned function after it is done.
func (g *group) lead() (done func()) {
	next := sync.OnceFunc(g.next)
	late := time.AfterFunc(lockWait, next)
	return func() { late.Stop(); next() }
}

// join adds a write to the waiting ones. If nothing is in flight, it returns nil, and the caller leads.
func (g *group) join(c *change, sent func()) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.busy {
		g.busy = true
		return nil
	}
	m := &member{c, sent, make(chan writeResult, 1)}
	g.waiting = append(g.waiting, m)
	return m
}

// leave removes a write whose context has ended, unless it is in flight.
func (g *group) leave(m *member) {
	g.mu.Lock()
	g.waiting = slices.DeleteFunc(g.waiting, func(w *member) bool { return w == m })
	g.mu.Unlock()
	select {
	case a := <-m.result:
		if a.lead {
			g.next()
		}
	default:
	}
}

// next starts the waiting writes.
func (g *group) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxBatch)
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	switch n {
	case 0:
		g.busy = false
	case 1:
		batch[0].result <- writeResult{lead: true}
	default:
		go g.send(batch)
	}
}

// send sends a batch. It does not use the context of any write, because the other writes must not end with it.
func (g *group) send(batch []*member) {
	defer g.lead()()
	changes := make([]*change, len(batch))
	for i, m := range batch {
		changes[i] = m.change
	}
	refused, err := send(context.Background(), g.db.Finish, changes, false, func() {
		for _, m := range batch {
			m.sent()
		}
	})
	if pg.Undone(err) {
		err = errAlone
	}
	for _, m := range batch {
		m.result <- writeResult{err: cmp.Or(err, refused[m.change])}
	}
}
