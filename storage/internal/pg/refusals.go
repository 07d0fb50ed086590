package pg

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/presence"
)

// Refusals keeps the operations of this process that the server refuses, and that are repeated until it does them. A server that
// cannot be reached refuses nothing: see Outage.
type Refusals struct {
	log  *zap.Logger
	mask func(string) string // nil: nothing is masked

	mu     sync.Mutex
	open   map[*Operation]bool
	counts map[string]int64 // refused attempts since the start of the process, by SQLSTATE
	logged time.Time        // when a refusal was last logged; zero: none since the server last did everything
	began  time.Time        // when the first of the open operations was refused
}

func newRefusals(o Options) *Refusals {
	return &Refusals{log: o.Log, mask: o.Mask, open: map[*Operation]bool{}, counts: map[string]int64{}}
}

// An Operation is repeated until the database does it. Failed and Done are for one goroutine.
type Operation struct {
	all   *Refusals
	turn  turnkeeper.TurnID // whose journal it writes to; 0: of no turn
	began time.Time         // of its first failed attempt; zero: none has failed
	last  presence.Refusal
}

// Operation begins an operation. turn is that whose journal it writes to; 0: none.
func (s *DB) Operation(turn turnkeeper.TurnID) *Operation {
	return &Operation{all: s.Refusals, turn: turn}
}

// refusalLogPause is the least time between two log lines about refusals.
const refusalLogPause = 10 * time.Second

// Failed notes that an attempt failed. The server's refusals are logged from the second attempt on: most are locks, and lost
// connections whose second attempt succeeds.
func (o *Operation) Failed(err error) {
	r := o.all
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.began.IsZero() {
		o.began = time.Now()
	}
	code := SQLState(err)
	if code == "" || Away(err) {
		return
	}
	if len(r.open) == 0 {
		r.began = time.Now()
	}
	r.open[o] = true
	r.counts[code]++
	o.last.Turn, o.last.SQLState, o.last.Message = o.turn, code, r.message(err)
	o.last.Attempts++
	if o.last.Attempts > 1 && time.Since(r.logged) >= refusalLogPause {
		r.logged = time.Now()
		r.log.Warn("the database refuses to write; retrying", zap.Int64("turn_id", int64(o.turn)), zap.String("sqlstate", code),
			zap.String("error", o.last.Message), zap.Int("attempts", o.last.Attempts), zap.Duration("for", o.forNow()), zap.Int("refused", len(r.open)))
	}
}

// maxRefusalMessage is the maximum length of the message of a Refusal, in bytes.
const maxRefusalMessage = 200

func (r *Refusals) message(err error) string {
	text := Storable(err.Error())
	if r.mask != nil {
		text = r.mask(text)
	}
	return Storable(text[:min(len(text), maxRefusalMessage)])
}

// Done notes that the operation was done or given up.
func (o *Operation) Done() {
	r := o.all
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open[o] {
		return
	}
	delete(r.open, o)
	if len(r.open) == 0 && !r.logged.IsZero() {
		r.logged = time.Time{}
		r.log.Info("the database refuses nothing any more", zap.String("sqlstate", o.last.SQLState), zap.Duration("for", time.Since(r.began).Round(time.Millisecond)))
	}
}

// Waited returns how long ago the first attempt failed, and the SQLSTATE of the newest refusal; empty if there was none. A duration
// of 0 means that none has failed.
func (o *Operation) Waited() (d time.Duration, sqlState string) {
	if o.began.IsZero() {
		return 0, ""
	}
	return o.forNow(), o.last.SQLState
}

func (o *Operation) forNow() time.Duration { return time.Since(o.began).Round(time.Millisecond) }

// Now returns what the server refuses now, the longest first.
func (r *Refusals) Now() []presence.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]presence.Refusal, 0, len(r.open))
	for o := range r.open {
		refusal := o.last
		refusal.For = o.forNow()
		all = append(all, refusal)
	}
	slices.SortFunc(all, func(a, b presence.Refusal) int { return cmp.Or(cmp.Compare(b.For, a.For), cmp.Compare(a.Turn, b.Turn)) })
	return all
}

// Counts returns how many attempts the server has refused since the start of the process, by SQLSTATE.
func (r *Refusals) Counts() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[string]int64, len(r.counts))
	for code, n := range r.counts {
		counts[code] = n
	}
	return counts
}
