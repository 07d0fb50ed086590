package scheduler_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/scheduler"
)

// Ticks that keep failing are logged once a minute, not each second, and recorded each time; the record ends with the
// first success.
func TestFailingTicksAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *testEnv) {
		core, logs := observer.New(zap.WarnLevel)
		w.fail, w.failFor = errors.New("a row cannot be read"), 90*time.Second
		w.runFor(t, 100*time.Second, scheduler.Config{Log: zap.New(core)})
		lines := logs.FilterMessage("a scheduler tick failed, trying again").All()
		if len(lines) != 2 || lines[0].ContextMap()["error"] != "a row cannot be read" {
			t.Errorf("%d lines: %v", len(lines), lines)
		}
		last := len(w.tickFailures) - 1
		if last < 80 || w.tickFailures[0] == nil || w.tickFailures[last] != nil || w.tickFailures[last-1] == nil {
			t.Errorf("recorded %d failures, the last %v", last, w.tickFailures[max(last, 0)])
		}
	})
}
