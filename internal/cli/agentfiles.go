package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// An agentReport is what a check of agent files found.
type agentReport struct {
	Folder   string   `json:"folder"`
	Agents   []string `json:"agents"` // without a fault, sorted
	Problems []string `json:"problems"`
}

// checkFolder checks the agents of a folder against the settings.
func checkFolder(dir string, cfg *config.Config) agentReport {
	report := agentReport{Folder: dir, Agents: []string{}, Problems: []string{}}
	agents, err := agentdef.Load(dir)
	if err != nil {
		report.Problems = strings.Split(err.Error(), "\n")
	}
	registry, err := builtinTools()
	if err != nil {
		report.Problems = append(report.Problems, err.Error())
		return report
	}
	for _, agent := range agents {
		if faults := agentFaults(agent, cfg, registry); len(faults) > 0 {
			report.Problems = append(report.Problems, faults...)
			continue
		}
		report.Agents = append(report.Agents, agent.Name)
	}
	if len(agents) == 0 && len(report.Problems) == 0 {
		report.Problems = append(report.Problems, fmt.Sprintf("the folder %s has no agent: put a file NAME.md there, or set agents_dir", dir))
	}
	return report
}

// agentFaults says why a well-formed agent would not run here.
func agentFaults(agent *agentdef.Definition, cfg *config.Config, registry *tools.Registry) (faults []string) {
	add := func(err error) {
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", agent.Path, err))
		}
	}
	if err := agent.Check(cfg.Bounds); err != nil {
		faults = append(faults, err.Error()) // names the file itself
	}
	for _, model := range append([]string{cmp.Or(agent.Model, cfg.DefaultModel)}, agent.FallbackModels...) {
		add(checkProvider(model, cfg))
	}
	_, err := registry.Subset(agent.Tools)
	add(err)
	return faults
}

const demoProvider = "demo" // is built in

func checkProvider(model string, cfg *config.Config) error {
	provider, _, _ := strings.Cut(model, "/")
	configured := append([]string{demoProvider}, cfg.ProviderNames()...)
	if slices.Contains(configured, provider) {
		return nil
	}
	return fmt.Errorf("the model %q wants the provider %q, which is not configured; configured are: %s", model, provider, strings.Join(configured, ", "))
}

// builtinTools are the tools of this program, to be asked for their names.
func builtinTools() (*tools.Registry, error) {
	registry, err := tools.NewRegistry(builtin.All(builtin.Deps{Notes: noNotes{}})...)
	if err != nil {
		return nil, errors.Join(errors.New("the built-in tools are broken"), err)
	}
	return registry, nil
}

// noNotes stands for a store of notes that nobody opens.
type noNotes struct{ builtin.NoteStore }
