package simulation_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// An actor is one goroutine of the simulation that meets others: a dispatch, a
// tool's run, a scheduler, a heart. It draws from a stream of its own, which
// its kind and numbers decide, and whatever it does outside of itself it does at
// a nanosecond of its own: so a seed decides everything, however the machine
// runs the goroutines.
type actor struct {
	*rand.Rand
	w *world
	p *process // nil: a client, or the chaos itself
}

// The kinds of actors.
const (
	kindChaos uint64 = iota + 1
	kindBells
	kindClient
	kindBoot
	kindHeart
	kindScheduler
	kindPump
	kindTurn
	kindTool
	kindCall
	kindServer
)

func (w *world) actor(p *process, kind uint64, ids ...uint64) *actor {
	state := w.seed*0x9e3779b97f4a7c15 + kind
	for _, id := range ids {
		state = (state^id)*0xbf58476d1ce4e5b9 + kind
		state ^= state >> 31
	}
	return &actor{rand.New(&stream{numbers: rand.NewPCG(w.seed, state)}), w, p}
}

// branch is an actor for a goroutine that the actor's own waits for, and may stop
// waiting for while it goes on.
func (a *actor) branch() *actor {
	return &actor{rand.New(&stream{numbers: rand.NewPCG(a.Uint64(), a.Uint64())}), a.w, a.p}
}

// A stream of numbers may be drawn from by goroutines that follow each other.
type stream struct {
	mu      sync.Mutex
	numbers *rand.PCG
}

func (s *stream) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbers.Uint64()
}

type actorKey struct{}

func (a *actor) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

func actorOf(ctx context.Context) *actor { return ctx.Value(actorKey{}).(*actor) }

// between is a span from least to most, to the nanosecond.
func (a *actor) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.Int64N(int64(most-least)))
}

// chance says yes so often.
func (a *actor) chance(p float64) bool { return a.Float64() < p }

// sleep waits for d, or until ctx ends, which it then reports as false.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// apart waits for a nanosecond of the actor's own.
func (a *actor) apart() { time.Sleep(a.between(1, 1000)) }
