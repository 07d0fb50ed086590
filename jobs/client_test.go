package jobs_test

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/jobs"
)

// River logs each start and stop. These lines must not appear in our log.
func TestRiverSpeaksUpOnlyToWarn(t *testing.T) {
	s := newSite(t)
	for _, level := range []zapcore.Level{zap.InfoLevel, zap.ErrorLevel} {
		core, logged := observer.New(level)
		var complaints strings.Builder
		log := zap.New(core, zap.ErrorOutput(zapcore.AddSync(&complaints)))
		client, err := jobs.NewClient(jobs.ClientConfig{Pool: s.QueuePool(), WorkerID: "w", Slots: 1, Log: log,
			Worker: jobs.NewWorker(jobs.WorkerConfig{DB: s.Store.DB, WorkerID: "w"})})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := client.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, line := range logged.All() {
			t.Errorf("at level %s it said: %s", level, line.Message)
		}
		if complaints.Len() > 0 {
			t.Errorf("at level %s: %s", level, complaints.String())
		}
	}
}
