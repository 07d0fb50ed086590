package turnkeepertest

import (
	"context"
	"slices"
	"sync"

	"turnkeeper"
	"turnkeeper/internal/memory"
)

// A Ledger simulates an external system: an effect that is recorded in it has happened,
// even if the worker dies. The fakes that a tool acts on call Do for each effect. The
// zero value is empty and ready for use; all methods are safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	effects []Effect
	keys    map[string]bool
}

// An Effect is one recorded effect.
type Effect struct {
	What   string
	Key    string // idempotency key; empty: it came without one
	Tool   string // tool of the call; empty: the effect did not come from a tool's run
	Turn   turnkeeper.TurnID
	Call   turnkeeper.CallKey
	Worker string

	run int // run of the call, as toolRun.number
}

// Do records one effect with its idempotency key. Like a system that honours such keys,
// Do lets the effect of one key happen once: first is false from the second time on. An
// effect with an empty key happens each time.
//
// Do takes from ctx, the context that the tool was given, the call that the effect
// belongs to. A run can be crashed or paused right before the effect and right after it.
// A crash ends the tool's goroutine within Do (its deferred calls run), and a dead worker
// has no effects. So hold no lock while you call Do, except one that is released by
// defer.
func (l *Ledger) Do(ctx context.Context, key, what string) (first bool) {
	c, within := ctx.Value(callKey{}).(*toolRun)
	if !within {
		return l.write(Effect{What: what, Key: key})
	}
	c.process.At(ctx, PointEffectBefore)
	effect := Effect{
		What: what, Key: key, Tool: c.spec.Name, Turn: c.call.TurnID, Call: c.call.Key, Worker: string(c.process.id),
		run: c.number,
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

// Effects returns all effects that have happened, in order.
func (l *Ledger) Effects() []Effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.effects)
}

// Count returns how often the effect what has happened.
func (l *Ledger) Count(what string) (n int) {
	for _, e := range l.Effects() {
		if e.What == what {
			n++
		}
	}
	return n
}

// Has reports whether an effect with this key has happened. A tool's Reconcile can use
// it.
func (l *Ledger) Has(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return key != "" && l.keys[key]
}

// OnCommit registers f to be called if and when the transaction that records a
// transactional tool's success commits. It is for fakes of the database that such a tool
// writes to. Outside of a transactional tool, OnCommit drops f and returns false. f must
// be quick, and must call nothing of this package.
func OnCommit(ctx context.Context, f func()) (ok bool) { return memory.OnCommit(ctx, f) }
