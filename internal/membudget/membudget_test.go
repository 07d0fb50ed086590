package membudget_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"turnkeeper/internal/membudget"
)

// grow starts to grow a lease. The channel is closed when it has grown.
func grow(t *testing.T, l *membudget.Lease, bytes int64) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.Grow(t.Context(), bytes); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return done
}

func has(t *testing.T, what string, done <-chan struct{}, want bool) {
	t.Helper()
	synctest.Wait()
	select {
	case <-done:
		if !want {
			t.Errorf("%s does not wait", what)
		}
	default:
		if want {
			t.Errorf("%s waits", what)
		}
	}
}

func use(t *testing.T, b *membudget.Budget, held int64, waiting int) {
	t.Helper()
	if got := b.Use(); got.Held != held || got.Waiting != waiting {
		t.Errorf("%+v, want %d bytes held and %d results waiting", got, held, waiting)
	}
}

func TestResultsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membudget.New(300, 100) // 200 and the reserve
		var l [5]*membudget.Lease
		for i := range l {
			l[i] = b.Account().Lease()
		}
		has(t, "the first", grow(t, l[0], 90), true)
		has(t, "the second", grow(t, l[1], 90), true)
		has(t, "the third, which gets the reserve,", grow(t, l[2], 60), true)
		fourth := grow(t, l[3], 50)
		has(t, "the fourth", fourth, false)
		fifth := grow(t, l[4], 10)
		has(t, "the fifth, although it would fit,", fifth, false)
		has(t, "the third, which grows,", grow(t, l[2], 40), true)
		use(t, b, 280, 2)
		l[0].Shrink(50)
		has(t, "the fourth", fourth, true)
		has(t, "the fifth", fifth, true)
		use(t, b, 300, 0)
		sixth := grow(t, l[3], 20)
		has(t, "the fourth again", sixth, false)
		l[2].Release()
		l[2].Release()
		has(t, "the fourth again", sixth, true)
		for _, one := range l {
			one.Release()
		}
		use(t, b, 0, 0)
		if err := l[0].Grow(t.Context(), 1000); err != nil {
			t.Error(err)
		}
		use(t, b, 0, 0)
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membudget.New(100, 100) // all is the reserve
		first, second, third := b.Account().Lease(), b.Account().Lease(), b.Account().Lease()
		has(t, "the first", grow(t, first, 1), true)
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() { failed <- second.Grow(ctx, 1) }()
		synctest.Wait()
		after := grow(t, third, 1)
		use(t, b, 1, 2)
		late := errors.New("too late")
		cancel(late)
		if err := <-failed; !errors.Is(err, late) {
			t.Error(err)
		}
		use(t, b, 1, 1)
		first.Release()
		has(t, "the third", after, true)
		third.Release()
		use(t, b, 0, 0)
	})
}

// TestATurnsResultsWaitForEachOther checks that a result that was read, but is recorded only when
// others of its turn were read, does not keep these waiting.
func TestATurnsResultsWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membudget.New(100, 100)
		turn, other := b.Account(), b.Account()
		first, second, third, foreign := turn.Lease(), turn.Lease(), turn.Lease(), other.Lease()
		has(t, "the first", grow(t, first, 80), true)
		waits := grow(t, foreign, 10)
		next := grow(t, second, 100)
		has(t, "the second, while the first is read,", next, false)
		first.Settle(70 + membudget.FreeBytes)
		has(t, "the second", next, true)
		last := grow(t, third, 1)
		has(t, "the third, while the second is read,", last, false)
		has(t, "another turn", waits, false)
		use(t, b, 170+membudget.FreeBytes, 2)
		turn.Close()
		has(t, "another turn", waits, true)
		has(t, "the third, of a closed turn,", last, true)
		use(t, b, 10, 0)
		other.Close()
		use(t, b, 0, 0)
	})
}

// TestNoLimit checks that there is none without a budget, and that no result counts for more than the
// largest.
func TestNoLimit(t *testing.T) {
	var b *membudget.Budget
	account := b.Account()
	lease := account.Lease()
	if err := lease.Grow(t.Context(), 1<<60); err != nil {
		t.Error(err)
	}
	lease.Shrink(1)
	lease.Settle(1)
	lease.Release()
	account.Close()
	use(t, b, 0, 0)
	small := membudget.New(10, 100).Account().Lease()
	if err := small.Grow(t.Context(), 1<<60); err != nil {
		t.Error(err)
	}
	if membudget.Of(t.Context()) != nil || membudget.Of(membudget.With(t.Context(), small)) != small {
		t.Error("the context does not carry the lease")
	}
}

// TestTransfer checks that what was read for a call becomes the call's, with its place in the reserve.
func TestTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membudget.New(0, 4<<20)
		reader, call, other := b.Account().Lease(), b.Account().Lease(), b.Account().Lease()
		for _, bytes := range []int64{membudget.FreeBytes, membudget.FreeBytes + 1, 1 << 20} {
			if err := reader.GrowTo(t.Context(), bytes); err != nil {
				t.Error(err)
			}
		}
		use(t, b, 1<<20, 0)
		reader.Transfer(call)
		next := grow(t, reader, 1)
		waits := grow(t, other, 1)
		has(t, "the call, which has the reserve,", grow(t, call, 1), true)
		has(t, "another", waits, false)
		use(t, b, 1<<20+1, 2)
		call.Release()
		has(t, "the next message", next, true)
		reader.Transfer(call) // which is over
		has(t, "another", waits, true)
		other.Transfer(nil)
		use(t, b, 0, 0)
	})
}

// TestNoDeadlock runs turns whose calls grow in random steps, and whose results are released only when
// all of the turn were read.
func TestNoDeadlock(t *testing.T) {
	const size, largest, calls = 400, 100, 4
	b := membudget.New(size, largest)
	var turns sync.WaitGroup
	var peak atomic.Int64
	for range 20 {
		turns.Go(func() {
			for range 20 {
				account := b.Account()
				var group sync.WaitGroup
				for range calls {
					group.Go(func() {
						l := account.Lease()
						for left := rand.Int64N(largest + 1); left > 0; {
							n := 1 + rand.Int64N(left)
							left -= n
							if err := l.Grow(t.Context(), n); err != nil {
								t.Error(err)
							}
							peak.Store(max(peak.Load(), b.Use().Held))
						}
						l.Settle(membudget.FreeBytes)
					})
				}
				group.Wait()
				account.Close()
			}
		})
	}
	turns.Wait()
	use(t, b, 0, 0)
	if p := peak.Load(); p > size+calls*largest {
		t.Errorf("%d bytes were held", p)
	}
}

// TestAReaderWaitsForNoTurn has a turn whose first result fills the reserve, and which waits for another one: a reader
// reads it, behind an answer to another turn.
func TestAReaderWaitsForNoTurn(t *testing.T) {
	const size, largest = 120 << 20, 100 << 20
	b := membudget.New(size, largest)
	turn, other, reader := b.Account(), b.Account(), b.Reader()
	full, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("it waits"))
	grow := func(l *membudget.Lease, bytes int64) {
		t.Helper()
		if err := l.Grow(full, bytes); err != nil {
			t.Fatalf("%v, although %d bytes are held", err, b.Use().Held)
		}
	}
	first := turn.Lease()
	grow(first, 90<<20)
	first.Settle(90 << 20)
	reading, others, own := reader.Lease(), other.Lease(), turn.Lease()
	for _, call := range []*membudget.Lease{others, own} {
		grow(reading, 60<<20)
		reading.Transfer(call)
		if err := other.Lease().Grow(full, 60<<20); err == nil {
			t.Error("another turn reads beside the reader")
		}
		call.Settle(60 << 20)
	}
	turn.Close()
	other.Close()
	reader.Close()
	use(t, b, 0, 0)
	grow(b.Account().Lease(), 90<<20)
}
