package app

import (
	"context"
	"errors"
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
		up, starts := true, 0
		core, logged := observer.New(zap.InfoLevel)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		revive := func(context.Context) error {
			starts++
			if time.Since(began) < full {
				return errors.New("no space left on device")
			}
			up = true
			return nil
		}
		go keepAlive(ctx, func() bool { return up }, revive, zap.New(core))
		wait := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // of the bubble
			synctest.Wait()
		}

		wait(time.Minute)
		if starts != 0 {
			t.Fatalf("one that runs was started %d times", starts)
		}
		up = false
		wait(time.Minute)
		if starts < 5 || starts > 8 {
			t.Errorf("it was tried %d times in the first minute", starts)
		}
		wait(8 * time.Minute)
		if n := logged.FilterMessageSnippet("could not be started").Len(); n != starts || n > 30 {
			t.Errorf("%d lines tell of %d tries in nine minutes", n, starts)
		}
		if n := logged.FilterMessageSnippet("has died").Len(); n != 1 {
			t.Errorf("its death is told %d times", n)
		}
		wait(longestPause + lookEvery)
		if !up {
			t.Error("it was not started when that was possible")
		}
		starts, up = 0, false
		wait(lookEvery)
		if !up || starts != 1 {
			t.Errorf("after its second death it was started %d times", starts)
		}
		if n := logged.FilterMessageSnippet("has died").Len(); n != 2 {
			t.Errorf("two deaths are told %d times", n)
		}
	})
}
