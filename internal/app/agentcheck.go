package app

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference/demo"
	"turnkeeper/internal/config"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
	"turnkeeper/tools/program"
)

// A Toolbox is what agents' tools are checked against.
type Toolbox struct {
	*tools.Registry
	// Whole says that a worker would have these tools and no others. Where it
	// is false a worker of the user's own may have more, and a tool that is not
	// here is no fault.
	Whole bool
}

// An AgentsReport is what a check of a folder of agents found. Each fault and
// each warning names the agent's file.
type AgentsReport struct {
	Agents   []*agentdef.Definition // without a fault, sorted by name
	Faults   []error                // why a worker would not start; none: it would
	Warnings []string               // what is allowed, and may not be meant

	scripts demo.Scripts // of the folder
}

// CheckAgents reads the agents of a folder, and its demo scripts, and checks them
// against settings and tools. It is the one rule for a worker and for those who look at its files.
func CheckAgents(dir string, cfg *config.Config, toolbox Toolbox) AgentsReport {
	var report AgentsReport
	agents, err := agentdef.Load(dir)
	if err != nil {
		report.Faults = append(report.Faults, err)
	}
	scripts, wrong := demo.Load(dir)
	if wrong != nil {
		report.Faults = append(report.Faults, wrong)
	}
	report.scripts = scripts
	for _, file := range agentdef.Overlooked(dir) {
		report.warn(file, "this file is not read: an agent's file ends in .md, in lower case")
	}
	names := map[string]bool{}
	for _, agent := range agents {
		names[agent.Name] = true
	}
	for _, agent := range agents {
		report.checkSubAgents(agent, names)
		if faults := report.check(agent, cfg, toolbox); len(faults) > 0 {
			report.Faults = append(report.Faults, faults...)
			continue
		}
		report.Agents = append(report.Agents, agent)
	}
	if len(agents) == 0 && err == nil {
		report.Faults = append(report.Faults,
			fmt.Errorf("the folder %s has no agent: put a file NAME.md there, or set agents_dir", dir))
	}
	return report
}

func (r *AgentsReport) warn(file, format string, args ...any) {
	r.Warnings = append(r.Warnings, file+": "+fmt.Sprintf(format, args...))
}

// check notes what may not be meant, and returns why a well-formed agent would
// not run.
func (r *AgentsReport) check(d *agentdef.Definition, cfg *config.Config, toolbox Toolbox) (faults []error) {
	fault := func(err error) { faults = append(faults, fmt.Errorf("%s: %w", d.Path, err)) }
	if err := d.Check(cfg.Bounds); err != nil {
		faults = append(faults, err) // names the file itself
	} else if err := cfg.BoundsFor(d).Check(); err != nil {
		fault(err)
	}
	models := append([]string{cmp.Or(d.Model, cfg.DefaultModel)}, d.FallbackModels...)
	if extraction := cmp.Or(d.ExtractionModel, cfg.ExtractionModel); extraction != "" {
		models = append(models, extraction)
	}
	for _, model := range models {
		if err := checkModel(model, cfg, r.scripts, filepath.Dir(d.Path)); err != nil {
			fault(err)
		}
	}
	for _, name := range d.Tools {
		if name == turnkeeper.ToolSpawnAgent && len(d.SubAgents) > 0 {
			continue
		}
		if t, ok := cfg.Tools[name]; ok {
			r.checkProgram(d, t)
		}
		if _, err := toolbox.Subset([]string{name}); err == nil {
			continue
		} else if toolbox.Whole {
			fault(err)
		} else {
			r.warn(d.Path, "%s", strange(name, toolbox.Registry))
		}
	}
	for _, err := range checkMCP(d, cfg, toolbox.Registry) {
		fault(err)
	}
	if problem := checkRoot(d); problem != "" {
		r.warn(d.Path, "%s", problem)
	}
	return faults
}

// checkSubAgents warns of agents that have no file here: they may be on other workers.
func (r *AgentsReport) checkSubAgents(d *agentdef.Definition, names map[string]bool) {
	for _, name := range d.SubAgents {
		if !names[name] {
			r.warn(d.Path, "sub_agents holds %q, and no agent of that name is in this folder: spawning it fails unless another worker has it", name)
		}
	}
	if slices.Contains(d.Tools, turnkeeper.ToolSpawnAgent) {
		r.warn(d.Path, "%s need not be among the tools: an agent with sub_agents has it", turnkeeper.ToolSpawnAgent)
	}
}

// strange says what becomes of a tool that only a worker of the user's own can
// have.
func strange(name string, known *tools.Registry) string {
	hint := ""
	if near := known.Nearest(name); near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", near)
	}
	return fmt.Sprintf("the tool %q is neither built in nor in the config file%s: a worker starts with this agent only if it is a program of your own that has the tool; known here are %s",
		name, hint, strings.Join(known.Names(), ", "))
}

// checkProgram warns of a program that is not here: it may be where the worker
// runs, or come later.
func (r *AgentsReport) checkProgram(d *agentdef.Definition, t config.Tool) {
	if _, err := program.Find(t.Command[0]); err != nil {
		r.warn(d.Path, "calls of the tool %q fail here: %v", t.Name, err)
	}
	if t.Dir == "" {
		return
	}
	if info, err := os.Stat(t.Dir); err != nil || !info.IsDir() {
		r.warn(d.Path, "calls of the tool %q fail here: its folder %s does not exist", t.Name, t.Dir)
	}
}

// withoutRoot says which of an agent's tools need a root folder, where it has none.
func withoutRoot(names []string) string {
	for _, name := range names {
		if builtin.NeedsRoot(name) {
			return fmt.Sprintf("%s needs a folder, and there is no root: each of its calls fails; set root", name)
		}
	}
	return ""
}

// checkRoot says what is odd about the folder of the file tools; empty: nothing.
// It may be made later, by a tool even, and so it is no fault.
func checkRoot(d *agentdef.Definition) string {
	root := d.Root
	if root == "" {
		return withoutRoot(d.Tools)
	}
	switch info, err := os.Stat(root); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Sprintf("root is %s, which does not exist here: the file tools fail until it does", root)
	case err != nil:
		return fmt.Sprintf("root cannot be looked at: %v", err)
	case !info.IsDir():
		return fmt.Sprintf("root is %s, which is not a folder: the file tools fail until it is", root)
	}
	return ""
}
