package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnkeeper"
)

// TestACallWhoseClaimIsVoidIsStopped cancels the turn of a call that runs. The doorbell, or a poll without one, stops
// the call; before, neither does, though others ask meanwhile how many calls run.
func TestACallWhoseClaimIsVoidIsStopped(t *testing.T) {
	b := newBench(t)
	for name, poll := range map[string]time.Duration{"a ring": time.Hour, "a poll": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			defer func(all *testing.T) { b.t, b.T = all, all }(b.t)
			b.t, b.T = t, t
			stopped := make(chan error, 1)
			runs := b.fails(func(ctx context.Context) error {
				<-ctx.Done()
				stopped <- context.Cause(ctx)
				return context.Cause(ctx)
			})
			turn := b.call()
			await(t, runs, "the call does not run")

			ctx, cancel := context.WithCancel(t.Context())
			rings, ended := make(chan struct{}), make(chan struct{})
			b.worker.PollEvery(poll)
			go func() {
				defer close(ended)
				b.worker.Watch(ctx, rings)
			}()
			defer func() { cancel(); <-ended }()
			for range 3 { // after the last one, the watch has looked twice
				if rings <- struct{}{}; b.worker.Running() != 1 {
					t.Fatal("the call does not run")
				}
			}
			select {
			case err := <-stopped:
				t.Fatalf("a call whose claim holds was stopped: %v", err)
			default:
			}
			if _, err := b.CancelTurn(t.Context(), turn, "enough"); err != nil {
				t.Fatal(err)
			}
			if poll == time.Hour {
				rings <- struct{}{}
			}
			select {
			case err := <-stopped:
				if !errors.Is(err, turnkeeper.ErrFenced) {
					t.Errorf("it was stopped because of %v", err)
				}
			case <-time.After(patience):
				t.Error("a call whose claim is void runs on")
			}
			b.idle()
		})
	}
}

// await fails the test unless a channel is closed.
func await(t *testing.T, closed <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal(otherwise)
	}
}
