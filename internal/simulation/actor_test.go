package simulation_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// An actor is a goroutine of the simulation that interacts with others: a dispatch, a tool call, a
// scheduler, a heartbeat. Its random numbers depend only on the seed, its kind and its ids, and it
// acts at a nanosecond of its own. So the seed decides everything, however the machine schedules
// goroutines.
type actor struct {
	*rand.Rand
	env      *env
	p        *process // nil: a client, or the faults
	state    uint64
	branches atomic.Uint64
}

// The kinds of actors.
const (
	kindFaults uint64 = iota + 1
	kindDoorbells
	kindClient
	kindBoot
	kindHeartbeat
	kindScheduler
	kindPump
	kindTurn
	kindTool
	kindCall
	kindServer
	kindPeople
	kindBranch
)

func (e *env) actor(p *process, kind uint64, ids ...uint64) *actor {
	state := e.seed*0x9e3779b97f4a7c15 + kind
	for _, id := range ids {
		state = (state^id)*0xbf58476d1ce4e5b9 + kind
		state ^= state >> 31
	}
	return &actor{Rand: rand.New(&stream{numbers: rand.NewPCG(e.seed, state)}), env: e, p: p, state: state}
}

// branch returns an actor for a goroutine of the actor, which may outlive it. It takes no number of the actor's, which
// may act at the same time.
func (a *actor) branch() *actor { return a.env.actor(a.p, kindBranch, a.state, a.branches.Add(1)) }

// A stream of random numbers may be used by several goroutines, one after the other.
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

// between returns a random duration from least up to, but not including, most.
func (a *actor) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.Int64N(int64(most-least)))
}

// chance returns true with probability p.
func (a *actor) chance(p float64) bool { return a.Float64() < p }

// sleep waits for d and returns true, or returns false when ctx ends first.
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

// apart sleeps for a random time under a microsecond, so that no two actors act at the same time.
func (a *actor) apart() { time.Sleep(a.between(1, 1000)) }
