package jobs_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/jobs"
)

// TestRiversLogWhileTheDatabaseIsAway logs connection errors of River's parts, and other lines: only these are logged.
func TestRiversLogWhileTheDatabaseIsAway(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	log := jobs.RiverLogger(zap.New(core))
	part := log.With("part", "producer").WithGroup("g")
	for i := range 10 {
		log.Error("Error fetching jobs", slog.String("err", "failed to connect to `user=x`: dial error"))
		part.Error("Error attempting reelection", "err", fmt.Errorf("try %d: %w", i,
			errors.New("server closed: unexpected EOF")))
	}
	log.Error("Error fetching jobs", slog.String("err", "syntax error (SQLSTATE 42601)"))
	log.Warn("Job appears to be stuck")
	if n := logged.Len(); n != 2 {
		t.Errorf("%d lines in all: %v", n, logged.All())
	}
}
