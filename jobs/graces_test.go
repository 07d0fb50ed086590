package jobs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/turnlog"
)

var errStops = errors.New("the worker stops")

// A slowWriter writes until its context ends.
type slowWriter struct {
	writer
	began time.Time
	until time.Duration // since began, when the context ended
	cause error
	slow  time.Duration // it has written after that time
}

func (w *slowWriter) Append(ctx context.Context, _ turnlog.Entry, _ turnlog.Consequence) error {
	select {
	case <-ctx.Done():
		w.until, w.cause = time.Since(w.began), context.Cause(ctx)
	case <-time.After(w.slow):
	}
	return w.cause
}

// TestHowLongAWriteOutlivesItsContext ends the context of a write a minute after the write has begun, or before. The
// write that ends a turn has 10 s more, another one that was in flight 2 s.
func TestHowLongAWriteOutlivesItsContext(t *testing.T) {
	step, end := turnlog.Entry{}, turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnSucceeded}}
	const after = time.Minute
	for name, c := range map[string]struct {
		write func(ctx context.Context, w *slowWriter) error
		ended bool          // the context has ended before
		slow  time.Duration // that the write takes
		until time.Duration // when its own context ends; 0: it does not
	}{
		"a step":                       {write: appends(step), slow: time.Hour, until: after + 2*time.Second},
		"a step that takes 1.9 s more": {write: appends(step), slow: after + 1900*time.Millisecond},
		"a step after the context":     {write: appends(step), slow: time.Hour, ended: true},
		"the end":                      {write: appends(end), slow: time.Hour, until: after + 10*time.Second},
		"the end takes 9.9 s more":     {write: appends(end), slow: after + 9900*time.Millisecond},
		"the end after the context":    {write: appends(end), slow: time.Hour, ended: true, until: 10 * time.Second},
		"a turn is handed back":        {write: hands, slow: time.Hour, until: 10 * time.Second},
		"a turn is handed back late":   {write: hands, slow: time.Hour, ended: true, until: 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if c.ended {
				cancel(errStops)
			}
			time.AfterFunc(after, func() { cancel(errStops) })
			w := &slowWriter{began: time.Now(), slow: c.slow}
			if _ = c.write(ctx, w); w.until != c.until {
				t.Errorf("%s: the write's context ended after %s (%v), want %s", name, w.until, w.cause, c.until)
			}
			if w.cause != nil && !errors.Is(w.cause, errStops) && !errors.Is(w.cause, context.DeadlineExceeded) {
				t.Errorf("%s: the cause is %v", name, w.cause)
			}
			<-ctx.Done()
		})
	}
}

func appends(e turnlog.Entry) func(context.Context, *slowWriter) error {
	return func(ctx context.Context, w *slowWriter) error { return (&turnJournal{writer: w}).Append(ctx, e) }
}

func hands(ctx context.Context, w *slowWriter) error {
	return leave(ctx, w, "handed_back", turnlog.Outcome{})
}

// TestHowLongAReadOutlivesItsContext ends the context in which a turn is read. A turn that is cancelled is read for 10
// s more, to be closed, and one whose journal moved.
func TestHowLongAReadOutlivesItsContext(t *testing.T) {
	for name, c := range map[string]struct {
		cause        error
		moved, ended bool // ended: the context has ended before
		until        time.Duration
	}{
		"the worker stops":             {cause: errStops},
		"stopped before":               {cause: errStops, ended: true},
		"cancelled":                    {cause: agentturn.ErrCancelled, until: 10 * time.Second},
		"cancelled before":             {cause: agentturn.ErrCancelled, ended: true, until: 10 * time.Second},
		"stopped before, and it moved": {cause: errStops, moved: true, ended: true, until: 10 * time.Second},
		"cancelled before, and it moved": {cause: agentturn.ErrCancelled, moved: true, ended: true,
			until: 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if c.ended {
				cancel(c.cause)
			}
			reads, stop := reading(ctx, c.moved)
			defer stop()
			began, want := time.Now(), c.until
			if !c.ended {
				want += time.Minute
			}
			time.AfterFunc(time.Minute, func() { cancel(c.cause) })
			<-reads.Done()
			if got := time.Since(began); got != want || !errors.Is(context.Cause(reads), c.cause) {
				t.Errorf("%s: reading ended after %s, want %s: %v", name, got, want, context.Cause(reads))
			}
			<-ctx.Done()
		})
	}
}

// together runs the functions at once, each many times.
func together(do ...func(n int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for _, f := range do {
		group.Go(func() {
			<-start
			for n := range 3000 {
				f(n)
				if n%8 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	close(start)
	group.Wait()
}

// TestCallsComeAndGoWhileTheWorkerStops begins and ends calls while they are stopped, released and counted. The race
// detector, or the map itself, notices a lock that is missing.
func TestCallsComeAndGoWhileTheWorkerStops(t *testing.T) {
	w := &CallWorker{jobs: map[turnkeeper.JobID]bool{}, running: map[turnlog.ClaimID]*runningCall{}}
	for n := range 50 {
		w.running[turnlog.ClaimID(fmt.Sprint("long ", n))] = &runningCall{cancel: func(error) {}}
	}
	together(
		func(n int) { w.enter(turnkeeper.JobID(n))() },
		func(n int) { w.enter(turnkeeper.JobID(n % 7))() },
		func(n int) {
			_, done := w.begin(context.Background(), turnlog.ClaimedCall{Claim: turnlog.ClaimID(rune(n))})
			done()
		},
		func(int) { w.Stop(errStops) },
		func(int) { w.Release() },
		func(int) { _ = w.Running() },
	)
	if w.Resources() != "0 jobs, 50 running" {
		t.Errorf("it holds %s", w.Resources())
	}
}

// TestTurnsComeAndGoWhileTheWorkerStops does the same to turns.
func TestTurnsComeAndGoWhileTheWorkerStops(t *testing.T) {
	w := &Worker{running: map[turnkeeper.GrantID]*run{}, away: map[turnkeeper.GrantID]bool{},
		fetched: map[int64]time.Time{}, changed: make(chan struct{}), slots: 9}
	together(
		func(n int) {
			if _, leave, first := w.enter(context.Background(), int64(n), turnkeeper.GrantID(rune(n))); first {
				leave()
			}
		},
		func(int) {
			_, grants := w.Reserve(2)
			w.Release(grants)
			w.forgetAway(grants, nil)
		},
		func(int) { w.Stop(errStops) },
		func(n int) {
			w.end(turnkeeper.GrantID(rune(n)), turnlog.EndFinish)
			_ = w.finishOf(turnkeeper.GrantID(rune(n)))
		},
		func(n int) { w.cancel(turnkeeper.GrantID(rune(n)), errStops) },
		func(int) { _ = w.Running() },
		func(int) {
			if n := w.reserveFetch(context.Background(), 1); n > 0 {
				w.mu.Lock()
				w.fetching -= n
				w.freed()
				w.mu.Unlock()
			}
		},
	)
	if w.free() != w.slots {
		t.Errorf("it holds %s", w.Resources())
	}
}
