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

// Refusals keeps the operations of this process that the server refuses, and that are repeated until it does them. A
// server that cannot be reached refuses nothing: see Outage.
type Refusals struct {
	log  *zap.Logger
	mask func(string) string // nil: nothing is masked

	mu     sync.Mutex
	open   map[*Operation]bool // that are refused
	left   *Operation          // the one of open that was given up; nil: none, or a write has succeeded since
	counts map[string]int64    // refused attempts since the start of the process, by SQLSTATE
	logged time.Time           // when a refusal was last logged; zero: none since the server last did everything
	began  time.Time           // when the first of the open operations was refused
}

func newRefusals(o Options) *Refusals {
	return &Refusals{log: o.Log, mask: o.Mask, open: map[*Operation]bool{}, counts: map[string]int64{}}
}

// An Operation is repeated until the database does it or the caller gives it up, which says nothing of the database: it
// counts as refused until a write succeeds. The methods other than Note are for one goroutine.
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

// Failed notes that an attempt failed. The server's refusals are logged from the second attempt on: most are locks, and
// lost connections whose second attempt succeeds.
func (o *Operation) Failed(err error) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.failed(err)
}

// failed is Failed for a caller that has locked mu.
func (o *Operation) failed(err error) {
	r := o.all
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
		r.log.Warn("the database refuses writes; retrying", zap.Int64("turn_id", int64(o.turn)),
			zap.String("sqlstate", code),
			zap.String("error", o.last.Message), zap.Int("attempts", o.last.Attempts), zap.Duration("for", o.forNow()),
			zap.Int("refused", len(r.open)))
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

// Done notes that the operation was done, or with an error that it was given up. The end of a write to a journal also
// ends the refusal of one that was given up before.
func (o *Operation) Done(err error) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	switch left := o.all.left; {
	case err == nil && o.turn != 0:
		o.all.over(o, left)
	case err == nil || left != nil:
		o.all.over(o)
	case o.all.open[o]:
		o.all.left, o.turn, o.last.Turn = o, 0, 0 // the turn does not wait for it any more
	}
}

// Note notes an attempt of an operation that is tried again from time to time, such as a heartbeat. It is safe for
// concurrent use.
func (o *Operation) Note(err error) {
	if err != nil {
		o.Failed(err)
		return
	}
	o.Done(nil)
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.began, o.last = time.Time{}, presence.Refusal{}
}

// Recheck tries a write if one was given up because the server refused it, and no write has succeeded since.
func (r *Refusals) Recheck(try func() error) {
	r.mu.Lock()
	left := r.left
	r.mu.Unlock()
	if left == nil {
		return
	}
	err := try()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.left != left: // a write has succeeded meanwhile
	case err != nil:
		left.failed(err)
	default:
		r.over(left)
	}
}

// over notes that the server refuses the operations no longer. The caller has locked mu.
func (r *Refusals) over(operations ...*Operation) {
	before := len(r.open)
	var last string
	for _, o := range operations {
		if r.open[o] {
			delete(r.open, o)
			last = o.last.SQLState
		}
		if o == r.left {
			r.left = nil
		}
	}
	if before > 0 && len(r.open) == 0 && !r.logged.IsZero() {
		r.logged = time.Time{}
		r.log.Info("the database accepts all writes again", zap.String("sqlstate", last),
			zap.Duration("for", time.Since(r.began).Round(time.Millisecond)))
	}
}

// Waited returns how long ago the first attempt failed, and the SQLSTATE of the newest refusal; empty if there was
// none. A duration of 0 means that none has failed.
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
	slices.SortFunc(all, func(a, b presence.Refusal) int {
		return cmp.Or(cmp.Compare(b.For, a.For), cmp.Compare(a.Turn, b.Turn))
	})
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
