package database

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A private database that cannot be started again is tried for ever, and does not fill
// the log; one that could, and dies again, is started at once.
func TestAPrivateDatabaseThatWouldNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, full := time.Now(), 10*time.Minute
		var up atomic.Bool
		var starts atomic.Int64
		up.Store(true)
		core, logged := observer.New(zap.InfoLevel)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		revive := func(context.Context) error {
			starts.Add(1)
			if time.Since(began) < full {
				return errors.New("no space left on device")
			}
			up.Store(true)
			return nil
		}
		go keepAlive(ctx, up.Load, revive, zap.New(core))
		wait := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // of the bubble
			synctest.Wait()
		}

		wait(time.Minute)
		if n := starts.Load(); n != 0 {
			t.Fatalf("one that runs was started %d times", n)
		}
		up.Store(false)
		wait(time.Minute)
		if n := starts.Load(); n < 5 || n > 8 {
			t.Errorf("it was tried %d times in the first minute", n)
		}
		wait(8 * time.Minute)
		if n := logged.FilterMessageSnippet("could not restart").Len(); n != int(starts.Load()) || n > 30 {
			t.Errorf("%d lines tell of %d tries in nine minutes", n, starts.Load())
		}
		if n := logged.FilterMessageSnippet("has died").Len(); n != 1 {
			t.Errorf("its death is told %d times", n)
		}
		wait(longestPause + lookEvery)
		if !up.Load() {
			t.Error("it was not started when that was possible")
		}
		starts.Store(0)
		up.Store(false)
		wait(lookEvery)
		if n := starts.Load(); !up.Load() || n != 1 {
			t.Errorf("after its second death it was started %d times", n)
		}
		if n := logged.FilterMessageSnippet("has died").Len(); n != 2 {
			t.Errorf("two deaths are told %d times", n)
		}
	})
}
