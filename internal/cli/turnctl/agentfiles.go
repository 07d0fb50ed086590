package turnctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
)

// An agentReport is the result of a check of agent files.
type agentReport struct {
	Folder   string   `json:"folder"`
	File     string   `json:"file,omitempty"` // if only one file was checked
	Agents   []string `json:"agents"`         // without an error, sorted
	Tools    []string `json:"tools"`          // programs of the config file, sorted
	Problems []string `json:"problems"`
	Warnings []string `json:"warnings"`
	// Schedules are those of the agents, with their next times.
	Schedules []checkedSchedule `json:"schedules"`

	windows []setup.ModelWindow // of the agents' models
}

// A checkedSchedule is a schedule of an agent's file.
type checkedSchedule struct {
	Agent    string      `json:"agent"`
	Name     string      `json:"name"`
	Cron     string      `json:"cron"`
	TimeZone string      `json:"time_zone"`
	Next     []time.Time `json:"next"` // the next three times
}

// checkFiles checks the agents of a folder, or of one file, against the settings. It does not know the tools of custom
// worker programs.
//
// It asks the agents' MCP servers for their tools, and model servers for context windows that are not configured.
func checkFiles(ctx context.Context, s *shell.Session, path string,
	cfg *config.Config) (agentReport, []setup.MCPReport) {
	check, report := setup.CheckAgents, agentReport{Folder: path, Agents: []string{}, Tools: []string{},
		Problems: []string{}, Warnings: []string{}, Schedules: []checkedSchedule{}}
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
		for _, sched := range agent.Schedules {
			next := nextTimes(s, sched.Cron, sched.TimeZone)
			report.Schedules = append(report.Schedules, checkedSchedule{agent.Name, sched.Name, sched.Cron,
				sched.TimeZone, next})
		}
	}
	for _, fault := range found.Faults {
		report.Problems = append(report.Problems, strings.Split(fault.Error(), "\n")...)
	}
	report.Warnings = append(report.Warnings, found.Warnings...)
	report.windows = setup.CheckWindows(ctx, cfg, found.Agents)
	return report, askServers(ctx, s, cfg, found.Agents)
}

// isFile reports whether the path is the file of one agent. A missing path is one if it ends in .md.
func isFile(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return filepath.Ext(path) == ".md"
	}
	return !info.IsDir()
}

// askServers asks the MCP servers of agents for their tools. It opens the database only if
// one of them uses a person's login.
func askServers(ctx context.Context, s *shell.Session, cfg *config.Config,
	agents []*agentdef.Definition) (reports []setup.MCPReport) {
	asked := false
	if setup.MCPLoginsUsed(cfg, agents) {
		_ = s.WithDatabase(ctx, func(cfg *config.Config, db *database.Database) error { // doctor reports the error
			asked, reports = true, setup.CheckMCPServers(ctx, cfg, agents, db.Store)
			return nil
		})
	}
	if !asked {
		reports = setup.CheckMCPServers(ctx, cfg, agents, nil)
	}
	return reports
}

// hasFile reports whether the agent has a file in the folder. One that cannot be read
// counts.
func hasFile(dir, agent string) bool {
	_, err := os.Stat(filepath.Join(dir, agent+".md"))
	return !errors.Is(err, os.ErrNotExist)
}

// fileless returns the registered agents that have no file in the folder and are not retired. Without such a folder it
// returns none.
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
