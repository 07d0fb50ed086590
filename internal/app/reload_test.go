package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
)

// TestAReloadThatNeedsARestart checks that, when agents are reloaded, the error for an unknown tool or server suggests
// a restart: it may have been added to the settings after the worker started.
func TestAReloadThatNeedsARestart(t *testing.T) {
	cfg := config.Default()
	cfg.AgentsDir = t.TempDir()
	registry, err := setup.KnownTools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	load := func(a *setup.Agents, front string) error {
		if err := os.WriteFile(filepath.Join(cfg.AgentsDir, "echo.md"), []byte("---\n"+front+"\n---\nHello.\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		return a.Load(cfg, registry, zap.NewNop())
	}
	const hint = "if you added it after this worker was started, restart the worker"
	for _, front := range []string{"tools: [weather]", "mcp_servers: {files: [read]}"} {
		a := &setup.Agents{}
		if err := load(a, front); err == nil || strings.Contains(err.Error(), hint) {
			t.Errorf("%s, at the start: %v", front, err)
		}
		if err := load(a, "tools: [clock]"); err != nil {
			t.Fatal(err)
		}
		if err := load(a, front); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s, read again: %v", front, err)
		}
	}
}
