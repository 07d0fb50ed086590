package jobs_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/jobs"
)

// TestRiversLogWhileTheDatabaseIsAway logs connection errors of River's parts ten times a second
// for three minutes: one line a minute is logged. Other lines of River are logged unchanged.
func TestRiversLogWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.InfoLevel)
		log := jobs.RiverLogger(zap.New(core))
		part := log.With("part", "producer").WithGroup("g")
		for i := range 3 * 60 * 10 {
			log.Error("Error fetching jobs", slog.String("err", "failed to connect to `user=x`: dial error"))
			part.Error("Error attempting reelection", "err", fmt.Errorf("try %d: %w", i, errors.New("server closed: unexpected EOF")))
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // of the bubble
		}
		log.Error("Error fetching jobs", slog.String("err", "syntax error (SQLSTATE 42601)"))
		log.Warn("Job appears to be stuck")
		if n := logged.FilterMessageSnippet("River cannot reach the database").Len(); n != 3 {
			t.Errorf("%d lines tell of three minutes", n)
		}
		if left := logged.All()[1].ContextMap()["lines_left_out"]; left != int64(1199) {
			t.Errorf("%v lines are said to be left out of a minute", left)
		}
		if n := logged.Len(); n != 5 {
			t.Errorf("%d lines in all: %v", n, logged.All())
		}
	})
}
