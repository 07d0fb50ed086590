package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"turnkeeper/lease"
)

func TestHoldEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := time.Now()
		ctx, held, cancel := lease.Hold(t.Context(), asked, 200*time.Second, 40*time.Second)
		defer cancel()
		if want := asked.Add(-40 * time.Second); !held.Start.Equal(want) {
			t.Errorf("start is %v, want %v", held.Start, want)
		}
		<-ctx.Done()
		if got := time.Since(asked); got != 200*time.Second {
			t.Errorf("the context ended after %v, want 200s", got)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, lease.ErrLapsed) {
			t.Errorf("the cause is %v, want ErrLapsed", cause)
		}
	})
}

func TestHeart(t *testing.T) {
	const silence = 15 * time.Second
	tests := []struct {
		name     string
		silence  time.Duration
		failFrom time.Duration // beats fail after this time; 0: never
		hang     bool          // and hang instead of failing at once
		wantLost bool
	}{
		{"beats", silence, 0, false, false},
		{"beats fail", silence, 20 * time.Second, false, true},
		{"beats hang", silence, 20 * time.Second, true, true},
		{"beats fail and nobody takes over early", 0, 20 * time.Second, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var lastGood time.Time
				beat := func(ctx context.Context) error {
					if test.failFrom > 0 && time.Since(began) >= test.failFrom {
						if test.hang {
							<-ctx.Done()
						}
						return errors.New("no database")
					}
					lastGood = time.Now()
					return nil
				}
				heart := lease.NewHeart(beat, test.silence, zap.NewNop())
				if err := heart.Beat(t.Context()); err != nil {
					t.Fatal(err)
				}
				var lost atomic.Int32
				var lostAfter time.Duration
				ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
				defer stop()
				heart.Run(ctx, func(error) {
					lost.Add(1)
					lostAfter = time.Since(lastGood)
				})
				if !test.wantLost {
					if lost.Load() != 0 {
						t.Errorf("gave its turns up %d times", lost.Load())
					}
					return
				}
				if lost.Load() != 1 {
					t.Errorf("gave its turns up %d times, want once", lost.Load())
				}
				if lostAfter < silence/2 || lostAfter >= silence {
					t.Errorf("gave its turns up %v after its last beat; others take over after %v", lostAfter, silence)
				}
			})
		})
	}
}
