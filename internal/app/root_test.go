package app_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
)

// TestAWorkerOfRootIsWarned checks that a worker that runs tools as root logs a warning before it opens the database.
func TestAWorkerOfRootIsWarned(t *testing.T) {
	t.Parallel()
	agents := t.TempDir()
	if err := os.WriteFile(filepath.Join(agents, "clerk.md"), []byte("---\n---\nYou are clerk.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for role, runsTools := range map[string]bool{config.RoleWorker: true, config.RoleScheduler: false} {
		cfg := config.Default()
		url, err := config.NewDatabaseURL("postgres://127.0.0.1:1/none")
		if err != nil {
			t.Fatal(err)
		}
		cfg.DatabaseURL, cfg.AgentsDir, cfg.Roles = url, agents, []string{role}
		core, logs := observer.New(zapcore.WarnLevel)
		stopped, stop := context.WithCancel(t.Context())
		stop()
		err = app.RunWorker(stopped, stopped, cfg, zap.New(core), func(app.Ready) {})
		if err == nil {
			t.Error("a worker without a database has run")
		}
		warned := logs.FilterMessageSnippet("this worker runs as root, and so do its tools").Len() == 1
		if want := runsTools && os.Geteuid() == 0; warned != want {
			t.Errorf("role %s, user %d: warned %v, want %v; it ended with %v", role, os.Geteuid(), warned, want, err)
		}
	}
}
