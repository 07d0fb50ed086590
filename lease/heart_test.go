package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/lease"
)

var errAway = errors.New("no database")

// TestHowOftenAHeartBeats shows five beats in the takeover time, and at least one in five
// seconds.
func TestHowOftenAHeartBeats(t *testing.T) {
	for _, c := range []struct{ silence, every time.Duration }{
		{0, 5 * time.Second}, {15 * time.Second, 3 * time.Second}, {500 * time.Millisecond, 100 * time.Millisecond},
		{time.Minute, 5 * time.Second},
	} {
		t.Run(c.silence.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				var beats []time.Duration
				last := time.Now()
				heart := lease.NewHeart(func(context.Context) error {
					beats = append(beats, time.Since(last))
					last = time.Now()
					if len(beats) == 4 {
						stop()
					}
					return nil
				}, c.silence, zap.NewNop())
				if err := heart.Beat(ctx); err != nil {
					t.Fatal(err)
				}
				heart.Run(ctx, func(error) { t.Error("lost") })
				synctest.Wait()
				for _, pause := range beats[1:] {
					if pause != c.every {
						t.Errorf("beats after %v, want one every %v", beats, c.every)
					}
				}
			})
		})
	}
}

// TestAnOldBeatArrivesLate answers a beat after a later one: the later one counts.
func TestAnOldBeatArrivesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, old := make(chan struct{}), true
		heart := lease.NewHeart(func(context.Context) error {
			if old {
				old = false
				<-answer
			}
			return nil
		}, time.Minute, zap.NewNop())
		done := make(chan error)
		go func() { done <- heart.Beat(t.Context()) }()
		synctest.Wait()
		time.Sleep(4 * time.Second)
		if err := heart.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(answer)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if silent := heart.Silent(); silent != 0 {
			t.Errorf("silent for %v, though the newer beat has just arrived", silent)
		}
	})
}

// TestASilenceIsToldOnce lets a heart fall silent twice. Each silence is reported once, at
// the first beat that fails after two thirds of the takeover time. A beat that fails at that
// moment is a race, hence many runs.
func TestASilenceIsToldOnce(t *testing.T) {
	const silence = 15 * time.Second
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			at := func() time.Duration { return time.Since(began) }
			heart := lease.NewHeart(func(context.Context) error {
				if s := at(); s > 10*time.Second && s < time.Minute || s > 70*time.Second {
					return errAway
				}
				return nil
			}, silence, zap.NewNop())
			if err := heart.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
			defer stop()
			var lost []time.Duration
			heart.Run(ctx, func(error) { lost = append(lost, at()) })
			synctest.Wait()
			// Beats succeed until 9 s, and from 60 s to 69 s. They are sent every 3 s.
			if len(lost) != 2 || lost[0] != 21*time.Second || lost[1] != 81*time.Second {
				t.Fatalf("told at %v, want at 21s and 81s", lost)
			}
		})
	}
}

// TestWhatAHeartLogs shows that a failed beat is logged, except at the end of the process.
func TestWhatAHeartLogs(t *testing.T) {
	for name, c := range map[string]struct {
		ends bool
		want int
	}{"the database is away": {false, 1}, "the process ends": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				ctx, stop := context.WithCancel(t.Context())
				beats := 0
				heart := lease.NewHeart(func(ctx context.Context) error {
					if beats++; c.ends || beats == 2 {
						stop()
						<-ctx.Done()
					}
					return errAway
				}, 0, zap.New(core))
				heart.Run(ctx, func(error) {})
				synctest.Wait()
				if logs.Len() != c.want {
					t.Errorf("logged %v", logs.All())
				}
			})
		})
	}
}
