package memory

import (
	"cmp"
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/granting"
)

// Options configure a Store. The zero value uses the process's clock.
type Options struct {
	Now         func() time.Time // the database's clock; nil: time.Now
	LeaseTTL    time.Duration    // of every grant; 0: that of turnkeeper.DefaultBounds
	IdleTimeout time.Duration    // after which an idle transaction is undone; 0: 10 s
	MaxMessage  int              // bytes of a message's body; 0: turnkeeper.DefaultMaxMessageBytes
	// Ring is called after each commit that rings a doorbell, by the goroutine that
	// committed. It must not block. nil: not called.
	Ring func(Bell)
}

// A Bell is a doorbell: it means "query again".
type Bell struct {
	Topic Topic
	Grant turnkeeper.GrantID // of TopicTaken
}

// A Topic is the subject of a doorbell.
type Topic string

// The topics.
const (
	TopicInbox Topic = "inbox" // there may be something to schedule
	TopicJobs  Topic = "jobs"  // there may be a job to fetch
	TopicTaken Topic = "taken" // a grant was taken away from its worker
)

// A Wire carries the requests of one process. It calls do at most once, and returns
// its result when the answer arrives. A request that was not done, or whose answer
// was lost, fails with an error that matches ErrAway or with the cause of ctx.
type Wire interface {
	Carry(ctx context.Context, request string, do func() error) error
}

// ErrAway means that the store could not be reached, or did not answer. The request
// may have been done.
var ErrAway = errors.New("the store cannot be reached")

// A Store is a database in memory.
type Store struct {
	tables
	opts Options

	bugs    Bug
	failing map[granting.Subject]bool // see Fail
	ticker  *tx                       // holds the scheduler's lock; nil: it is free
	commit  int64                     // number of the newest commit
}

// New makes an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Ring == nil {
		o.Ring = func(Bell) {}
	}
	o.LeaseTTL = cmp.Or(o.LeaseTTL, bounds.Default().LeaseTTL)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 10*time.Second)
	o.MaxMessage = cmp.Or(o.MaxMessage, turnkeeper.DefaultMaxMessageBytes)
	return &Store{opts: o, failing: map[granting.Subject]bool{}, tables: tables{state: newState()}}
}

// A Conn is the connection of one process to the store.
type Conn struct {
	store *Store
	wire  Wire

	txs map[*tx]bool // open; guarded by the store's lock
}

// Connect opens the connection of one process. If wire is nil, every request is done
// and answered at once.
func (s *Store) Connect(wire Wire) *Conn {
	return &Conn{store: s, wire: wire, txs: map[*tx]bool{}}
}

// Break undoes the open transactions of the process, as the database does when it
// notices that a process is gone. Requests that still arrive are done.
func (c *Conn) Break() {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for t := range c.txs {
		t.end()
	}
	for id, conn := range c.store.state.present {
		if conn == c {
			delete(c.store.state.present, id)
		}
	}
}

// Present marks the worker's process as connected until the connection breaks, so that the
// scheduler can distinguish a slow worker from a dead one.
func (c *Conn) Present(id turnkeeper.WorkerID) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	c.store.state.present[id] = c
}

func (c *Conn) ask(ctx context.Context, request string, do func() error) error {
	if c.wire != nil {
		return c.wire.Carry(ctx, request, do)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return do()
}

// locked runs f under the store's lock, and then rings its bells.
func (s *Store) locked(f func(rings *[]Bell) error) error {
	var rings []Bell
	s.mu.Lock()
	err := f(&rings)
	s.mu.Unlock()
	if err == nil {
		for _, bell := range rings {
			s.opts.Ring(bell)
		}
	}
	return err
}

func (s *Store) now() time.Time { return s.opts.Now() }

// SetTimeline simulates a failover: the database continues with another timeline.
func (s *Store) SetTimeline(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.timeline = name
}
