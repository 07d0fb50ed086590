package turnkeepertest

import (
	"context"
	"slices"
	"sync"

	"turnkeeper"
	"turnkeeper/internal/memory"
)

// A Ledger stands for a system outside: what is written in it has happened,
// whatever becomes of the worker. The fakes that a tool acts on call Do for each
// effect. The zero value is empty and ready for use; all methods are safe for
// concurrent use.
type Ledger struct {
	mu      sync.Mutex
	effects []Effect
	keys    map[string]bool
}

// An Effect is something that has happened.
type Effect struct {
	What   string
	Key    string // idempotency key; empty: it came without one
	Tool   string // whose call it was; empty: it did not come from a tool's run
	Turn   turnkeeper.TurnID
	Call   turnkeeper.CallKey
	Worker string

	run int // which run of the call
}

// Do is one effect. key is the idempotency key it comes with: as a system that
// honours such keys does, Do lets the effect of one key happen once, and first
// is false from the second time on. An effect with an empty key happens each
// time.
//
// ctx is the context that the tool was given; it says whose effect it is. A run
// can be crashed or paused right before the effect and right after it. A crash
// ends the tool's goroutine within Do (its deferred calls run), and a worker
// that is dead has no effects: so hold no lock while you call Do, except one
// that is released by defer.
func (l *Ledger) Do(ctx context.Context, key, what string) (first bool) {
	c, within := ctx.Value(callKey{}).(*toolRun)
	if !within {
		return l.write(Effect{What: what, Key: key})
	}
	c.process.At(ctx, PointEffectBefore)
	effect := Effect{
		What: what, Key: key, Tool: c.spec.Name, Turn: c.call.TurnID, Call: c.call.Key, Worker: string(c.process.id), run: c.number,
	}
	first = l.write(effect)
	c.process.world.happened(c.spec, effect, first)
	c.process.At(ctx, PointEffectAfter)
	return first
}

func (l *Ledger) write(e Effect) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Key != "" && l.keys[e.Key] {
		return false
	}
	if l.keys == nil {
		l.keys = map[string]bool{}
	}
	l.keys[e.Key] = true
	l.effects = append(l.effects, e)
	return true
}

// Effects is all that has happened, in order.
func (l *Ledger) Effects() []Effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.effects)
}

// Count is how often something has happened.
func (l *Ledger) Count(what string) (n int) {
	for _, e := range l.Effects() {
		if e.What == what {
			n++
		}
	}
	return n
}

// Has says that an effect with this key has happened: what a tool's Reconcile
// asks.
func (l *Ledger) Has(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return key != "" && l.keys[key]
}

// OnCommit is for fakes of the database that a transactional tool writes to: f
// is called if and when the transaction that records the tool's success commits.
// ok is false outside of a transactional tool, and f is then dropped. f must be
// quick, and must call nothing of this package.
func OnCommit(ctx context.Context, f func()) (ok bool) { return memory.OnCommit(ctx, f) }
