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

// drifts are drifts of the database's clock from the worker's, in seconds per second: far
// more than those of real clocks.
var drifts = map[string]float64{"alike": 0, "database fast": 0.1, "database slow": -0.1, "database very fast": 0.2}

// elapsed returns the time that a clock with a drift shows.
func elapsed(real time.Duration, drift float64) time.Duration {
	return time.Duration(float64(real) * (1 + drift))
}

// The error of the deadline is at most the drift during a lease, which the margin covers.
func TestHoldOnADriftingClock(t *testing.T) {
	const ttl = 240 * time.Second
	for name, drift := range drifts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				granted := time.Now()
				time.Sleep(20 * time.Second) // in the queue
				asked, passed := time.Now(), elapsed(20*time.Second, drift)
				ctx, _, cancel := lease.Hold(t.Context(), asked, ttl-passed, passed)
				defer cancel()
				<-ctx.Done()
				shows := elapsed(time.Since(granted), drift)
				if wrong, most := (shows - ttl).Abs(), elapsed(ttl, max(drift, -drift))-ttl; wrong > most {
					t.Errorf("the work ends when the database's clock shows %v of %v; wrong by more than %v",
						shows, ttl, most)
				}
			})
		})
	}
}

// A worker that cannot beat gives its turns up before others may take them by the database's
// clock, at any drift.
func TestHeartGivesUpInTimeOnADriftingClock(t *testing.T) {
	const silence = 15 * time.Second
	for name, drift := range drifts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last time.Time
				var fails atomic.Bool
				heart := lease.NewHeart(func(context.Context) error {
					if fails.Load() {
						return errors.New("no database")
					}
					last = time.Now()
					return nil
				}, silence, zap.NewNop())
				if err := heart.Beat(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
				defer stop()
				time.AfterFunc(20*time.Second, func() { fails.Store(true) })
				gaveUp := time.Duration(0)
				heart.Run(ctx, func(error) { gaveUp = time.Since(last) })
				if shows := elapsed(gaveUp, drift); gaveUp == 0 || shows >= silence {
					t.Errorf("gave its turns up when the database's clock showed a silence of %v of %v", shows, silence)
				}
			})
		})
	}
}
