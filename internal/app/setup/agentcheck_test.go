package setup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// TestTheExtractionModelIsChecked checks that the extraction model is checked like other models, whether the agent or
// the setting names it.
func TestTheExtractionModelIsChecked(t *testing.T) {
	for name, c := range map[string]struct{ front, setting, fault string }{
		"the demo's": {"extraction_model: demo/script", "", ""},
		"the agent's": {"extraction_model: nowhere/x", "demo/script",
			`the model "nowhere/x" needs the provider "nowhere", which is not configured`},
		"the setting's": {"lane: agent", "nowhere/y",
			`the model "nowhere/y" needs the provider "nowhere", which is not configured`},
		"the agent's instead": {"extraction_model: demo/script", "nowhere/y", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte("---\n"+c.front+"\n---\nHi.\n"),
				0o600); err != nil {
				t.Fatal(err)
			}
			cfg := config.Default()
			cfg.ExtractionModel = c.setting
			report := setup.CheckAgents(dir, cfg, setup.Toolbox{Registry: &tools.Registry{}, Whole: true})
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

// TestDemoScriptsAreChecked checks that every demo script is checked with the agents, used or not, and that scripts
// named by agents must exist.
func TestDemoScriptsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		model, setting, script string
		faults                 []string
	}{
		"right": {"demo/mine", "demo/script", "steps: [{text: Hello.}]", nil},
		"not there": {"demo/other", "demo/script", "steps: [{text: Hello.}]",
			[]string{`a.md:2: the model "demo/other" wants the demo script`,
				"other.demo.yaml, which does not exist; there are: script, mine"}},
		"the default's": {"", "demo/other", "steps: [{text: Hello.}]",
			[]string{`a.md: the model "demo/other" wants the demo script`}},
		"a fault": {"demo/mine", "demo/script", "steps: [{say: Hello.}]",
			[]string{`mine.demo.yaml:1: unknown key "steps.1.say"`}},
		"nobody's fault": {"demo/script", "demo/script", "steps: [{say: Hello.}]",
			[]string{`mine.demo.yaml:1: unknown key "steps.1.say"`}},
		"out of the place": {"demo/../agents/mine", "demo/script", "steps: [{text: Hello.}]",
			[]string{"does not name a demo script"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			front := ""
			if c.model != "" {
				front = "model: " + c.model + "\n"
			}
			for file, text := range map[string]string{"a.md": "---\n" + front + "---\nHi.\n",
				"mine.demo.yaml": c.script} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg := config.Default()
			cfg.DefaultModel = c.setting
			report := setup.CheckAgents(dir, cfg, setup.Toolbox{Registry: &tools.Registry{}, Whole: true})
			fault := ""
			for _, err := range report.Faults {
				fault += err.Error() + "\n"
			}
			if (fault == "") != (c.faults == nil) || strings.Count(fault, "\n") > 1 {
				t.Errorf("faults: %s", fault)
			}
			for _, want := range c.faults {
				if !strings.Contains(fault, want) {
					t.Errorf("%q is not in the faults: %s", want, fault)
				}
			}
		})
	}
}

// TestRulesAreChecked checks the rules about calls in agents' files and in the settings.
func TestRulesAreChecked(t *testing.T) {
	compiler := func(source string) (policy.Rule, error) {
		if source == "good" {
			return policy.Compile(policy.Always, nil)
		}
		return nil, errors.New("it is bad")
	}
	dir := t.TempDir()
	front := "---\napprove:\n  pay: bad\n  \"*\": good\n  look: never\n---\nHi.\n"
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte(front), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(compiler policy.Compiler) (faults, warnings string) {
		report := setup.CheckAgents(dir, config.Default(), setup.Toolbox{Registry: &tools.Registry{}, Whole: true,
			Rules: compiler})
		return fmt.Sprint(report.Faults), strings.Join(report.Warnings, "; ")
	}
	if faults, _ := check(compiler); faults != "["+filepath.Join(dir, "a.md")+":3: approve.pay: it is bad]" {
		t.Errorf("faults: %s", faults)
	}
	if faults, warnings := check(nil); faults != "[]" || strings.Count(warnings, "is not checked here") != 2 {
		t.Errorf("without a compiler: %s, warnings: %s", faults, warnings)
	}
	cfg := config.Default()
	cfg.Approve = "bad"
	cfg.Tools = map[string]config.Tool{"pay": {ToolSwitches: config.ToolSwitches{Approve: "bad"}},
		"look": {ToolSwitches: config.ToolSwitches{Approve: "good"}}}
	cfg.MCPServers = map[string]config.MCPServer{"bank": {Approve: "bad", Tools: map[string]config.MCPToolSettings{
		"send": {ToolSwitches: config.ToolSwitches{Approve: "bad"}}}}}
	want :=
		"approve: it is bad\ntools.pay.approve: it is bad\nmcp_servers.bank.approve: it is bad\nmcp_servers.bank.tools.send.approve: it is bad"
	if err := setup.CheckRules(cfg, compiler); err == nil || err.Error() != want {
		t.Errorf("faults of the settings: %v", err)
	}
}

// TestDetachedToolsNeedPaging checks that an agent whose detached tool's results nothing could read is refused.
func TestDetachedToolsNeedPaging(t *testing.T) {
	registry := &tools.Registry{}
	spec := tools.Spec{Name: "far", Effect: turnkeeper.EffectNone, Detached: true, Timeout: time.Hour}
	if err := registry.Register(tools.New(spec, func(context.Context, tools.Call, struct{}) (tools.Result, error) {
		return tools.Result{}, nil
	})); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for paging, want := range map[string]string{
		"true": "[]", "false": "[" + filepath.Join(dir, "a.md") +
			`:3: tools has "far", which runs detached: its result could not be read with paging: false]`,
	} {
		if err := os.WriteFile(filepath.Join(dir, "a.md"),
			[]byte("---\nmodel: demo/script\ntools: [far]\npaging: "+paging+"\n---\nHi.\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		report := setup.CheckAgents(dir, config.Default(), setup.Toolbox{Registry: registry, Whole: true})
		if got := fmt.Sprint(report.Faults); got != want {
			t.Errorf("paging %s: %s", paging, got)
		}
	}
}

// TestTheModelsOfAnAgent checks that each key that names a model counts, and each model once.
func TestTheModelsOfAnAgent(t *testing.T) {
	def, err := agentdef.Parse("a", []byte("---\nmodel: p/a\nfallback_models: [p/b, p/c]\nextraction_model: p/d\n"+
		"levels:\n  low:\n    model: p/e\n  critical:\n    model: p/b\n---\nHi.\n"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	if got := setup.ModelsOf(def, cfg); !slices.Equal(got, []string{"p/a", "p/b", "p/c", "p/e", "p/d"}) {
		t.Errorf("got %q", got)
	}
	cfg.DefaultModel, cfg.ExtractionModel = "p/x", "p/y"
	if got := setup.ModelsOf(&agentdef.Definition{}, cfg); !slices.Equal(got, []string{"p/x", "p/y"}) {
		t.Errorf("by the settings: %q", got)
	}
}
