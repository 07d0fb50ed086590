package cli

import (
	"strings"

	"turnkeeper/agentdef"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/tools"
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
	registry, err := app.BuiltinTools()
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
		report.Problems = append(report.Problems, app.NoAgents(dir).Error())
	}
	return report
}

// agentFaults says why a well-formed agent would not run here.
func agentFaults(agent *agentdef.Definition, cfg *config.Config, registry *tools.Registry) []string {
	err := app.CheckAgent(agent, cfg, registry)
	if err == nil {
		return nil
	}
	faults := strings.Split(err.Error(), "\n")
	if _, err := registry.Subset(agent.Tools); err != nil {
		faults[len(faults)-1] += "; a tool of your own worker program is not known to this one"
	}
	return faults
}
