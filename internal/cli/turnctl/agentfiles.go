package turnctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
)

// An agentReport is what a check of agent files found.
type agentReport struct {
	Folder   string   `json:"folder"`
	File     string   `json:"file,omitempty"` // the only one that was looked at
	Agents   []string `json:"agents"`         // without a fault, sorted
	Tools    []string `json:"tools"`          // that the config file makes of programs, sorted
	Problems []string `json:"problems"`
	Warnings []string `json:"warnings"`

	windows []setup.ModelWindow // of the agents' models
}

// checkFiles checks the agents of a folder, or the one of a file, against the settings.
// The tools of a worker of the user's own are not known here.
//
// The MCP servers of the agents are asked for their tools, and model servers for context windows that
// nothing else tells.
func checkFiles(ctx context.Context, s *shell.Session, path string, cfg *config.Config) (agentReport, []setup.MCPReport) {
	check, report := setup.CheckAgents, agentReport{Folder: path, Agents: []string{}, Tools: []string{}, Problems: []string{}, Warnings: []string{}}
	known, err := setup.KnownTools(cfg)
	if err != nil {
		report.Problems = append(report.Problems, err.Error())
		return report, nil
	}
	for _, tool := range setup.Programs(cfg) {
		report.Tools = append(report.Tools, tool.Spec().Name)
	}
	if isFile(path) {
		check, report.Folder, report.File = setup.CheckAgent, filepath.Dir(path), path
	}
	found := check(path, cfg, setup.Toolbox{Registry: known})
	for _, agent := range found.Agents {
		report.Agents = append(report.Agents, agent.Name)
	}
	for _, fault := range found.Faults {
		report.Problems = append(report.Problems, strings.Split(fault.Error(), "\n")...)
	}
	report.Warnings = append(report.Warnings, found.Warnings...)
	report.windows = setup.CheckWindows(ctx, cfg, found.Agents)
	return report, askServers(ctx, s, cfg, found.Agents)
}

// isFile says that the path is meant as one agent's file, also where it is not there.
func isFile(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return filepath.Ext(path) == ".md"
	}
	return !info.IsDir()
}

// askServers asks the MCP servers that agents have tools of. The database is opened
// only for logins that people have made.
func askServers(ctx context.Context, s *shell.Session, cfg *config.Config, agents []*agentdef.Definition) (reports []setup.MCPReport) {
	asked := false
	if setup.MCPLoginsUsed(cfg, agents) {
		_ = s.WithDatabase(ctx, func(cfg *config.Config, db *database.Database) error { // doctor tells of it
			asked, reports = true, setup.CheckMCPServers(ctx, cfg, agents, db.Store)
			return nil
		})
	}
	if !asked {
		reports = setup.CheckMCPServers(ctx, cfg, agents, nil)
	}
	return reports
}

// hasFile says whether the agent has a file in the folder. One that cannot be looked
// at counts as there.
func hasFile(dir, agent string) bool {
	_, err := os.Stat(filepath.Join(dir, agent+".md"))
	return !errors.Is(err, os.ErrNotExist)
}

// fileless are the registered agents without a file in the folder that are not retired; none where there is
// no such folder here.
func fileless(dir string, agents []turnkeeper.AgentRegistration) (names []string) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	for _, a := range agents {
		if a.RetiredAt.IsZero() && !hasFile(dir, a.Name) {
			names = append(names, a.Name)
		}
	}
	return names
}
