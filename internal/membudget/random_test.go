package membudget_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"turnkeeper/internal/limittest"
	"turnkeeper/internal/membudget"
)

// A played is a lease of the random test, and what may wait on it.
type played struct {
	*membudget.Lease
	cancel context.CancelCauseFunc // of its Grow; nil: it does not wait
	done   chan error
}

// TestNobodyWaitsBesideRoom runs random operations. After each one, to look again for those that may be served serves
// nobody: no operation that makes room, or leaves a wait, forgets those who wait. In the end everything is free.
func TestNobodyWaitsBesideRoom(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playBudget(t, seed) })
		})
	}
}

func playBudget(t *testing.T, seed uint64) {
	const size, largest = 300, 100
	random := rand.New(rand.NewPCG(seed, 1))
	b := membudget.New(size, largest)
	var accounts []*membudget.Account
	for i := range 5 {
		if i == 0 {
			accounts = append(accounts, b.Reader())
		} else {
			accounts = append(accounts, b.Account())
		}
	}
	var leases []*played
	for range 12 {
		leases = append(leases, &played{Lease: accounts[random.IntN(5)].Lease()})
	}
	gaveUp := errors.New("it gave up")
	idle := b.Account().Lease()
	var log []string
	for step := range 60 {
		l, n := leases[random.IntN(len(leases))], random.Int64N(80)
		synctest.Wait()
		if l.done != nil {
			select {
			case err := <-l.done:
				l.done, l.cancel = nil, nil
				if err != nil {
					t.Errorf("a wait ends with %v", err)
				}
			default:
			}
		}
		what := ""
		switch choice := random.IntN(10); {
		case l.cancel != nil && choice < 5:
			what = "give up"
			l.cancel(gaveUp)
			if err := <-l.done; !errors.Is(err, gaveUp) {
				t.Errorf("the wait ends with %v", err)
			}
			l.cancel, l.done = nil, nil
		case l.cancel != nil:
			continue
		case choice < 6:
			what = fmt.Sprint("grow by ", n)
			ctx, cancel := context.WithCancelCause(t.Context())
			l.cancel, l.done = cancel, make(chan error, 1)
			go func() { l.done <- l.Grow(ctx, n) }()
		case choice == 6:
			what = fmt.Sprint("shrink to ", n)
			l.Shrink(n)
		case choice == 7:
			what = "settle"
			l.Settle(0)
		case choice == 8:
			what = "release"
			l.Release()
			l.Lease = accounts[random.IntN(5)].Lease()
		default:
			to := leases[random.IntN(len(leases))]
			if to.cancel != nil || to == l {
				continue
			}
			what = "transfer"
			l.Transfer(to.Lease)
		}
		log = append(log, what)
		synctest.Wait()
		before := b.Use()
		idle.Shrink(math.MaxInt64) // serves those for whom there is room
		synctest.Wait()
		if after := b.Use(); after != before {
			t.Fatalf("after step %d, %v: %+v; who waits beside room is served only later: %+v", step, log,
				before, after)
		}
	}
	for _, a := range accounts {
		a.Close()
	}
	synctest.Wait()
	use(t, b, 0, 0)
	for _, l := range leases {
		if l.cancel != nil {
			l.cancel(nil)
			if err := <-l.done; err != nil {
				t.Errorf("a wait for a closed account ends with %v", err)
			}
		}
	}
	all := b.Account().Lease()
	has(t, "one result", grow(t, all, largest), true)
	has(t, "and the rest of the budget", grow(t, b.Account().Lease(), largest), true)
	use(t, b, 2*largest, 0)
}

// TestLimits tries each limit of a budget.
func TestLimits(t *testing.T) {
	held := func(change func(l *membudget.Lease)) int64 {
		b := membudget.New(8<<20, 4<<20)
		change(b.Account().Lease())
		return b.Use().Held
	}
	limittest.Check(t, map[string]limittest.Row{
		"FreeBytes": {At: 64 << 10, Takes: func(t *testing.T, size int) bool {
			settled := held(func(l *membudget.Lease) { l.Settle(int64(size)) })
			grown := held(func(l *membudget.Lease) {
				if err := l.GrowTo(t.Context(), int64(size)); err != nil {
					t.Error(err)
				}
			})
			if (settled == 0) != (grown == 0) {
				t.Errorf("%d bytes that were read count for %d, that are read for %d", size, settled, grown)
			}
			return settled == 0
		}},
		"growStep": {At: 1 << 20, Takes: func(t *testing.T, size int) bool { // a second step is needed above
			return held(func(l *membudget.Lease) {
				for _, bytes := range []int64{membudget.FreeBytes + 1, int64(size)} {
					if err := l.GrowTo(t.Context(), bytes); err != nil {
						t.Error(err)
					}
				}
			}) == 1<<20
		}},
	})
}
