package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/tools"
)

// A model that searches stored results is checked as the others are, whether the
// agent names it or the setting does.
func TestTheExtractionModelIsChecked(t *testing.T) {
	for name, c := range map[string]struct{ front, setting, fault string }{
		"the demo's":          {"extraction_model: demo/script", "", ""},
		"the agent's":         {"extraction_model: nowhere/x", "demo/script", `the model "nowhere/x" wants the provider "nowhere", which is not configured`},
		"the setting's":       {"lane: agent", "nowhere/y", `the model "nowhere/y" wants the provider "nowhere", which is not configured`},
		"the agent's instead": {"extraction_model: demo/script", "nowhere/y", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte("---\n"+c.front+"\n---\nHi.\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := config.Default()
			cfg.ExtractionModel = c.setting
			report := app.CheckAgents(dir, cfg, app.Toolbox{Registry: &tools.Registry{}, Whole: true})
			fault := ""
			for _, err := range report.Faults {
				fault += err.Error()
			}
			if (fault == "") != (c.fault == "") || !strings.Contains(fault, c.fault) {
				t.Errorf("faults: %s", fault)
			}
		})
	}
}
