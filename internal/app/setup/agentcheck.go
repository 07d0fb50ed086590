package setup

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
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/config"
	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/internal/survival"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
	"turnkeeper/tools/program"
)

// A Toolbox holds the tools that agents are checked against.
type Toolbox struct {
	*tools.Registry
	// Whole says that a worker would have exactly these tools. If it is false, the user's own worker
	// program may have more, and an unknown tool is not a fault.
	Whole bool
	// Running says that these are the tools of a running worker, which do not include tools added to the
	// settings since it was started.
	Running bool
	// Rules compiles the agents' rules about calls. nil: they are not checked.
	Rules policy.Compiler
}

// An AgentsReport is the result of checking a folder of agents. Each fault and warning names the agent's
// file.
type AgentsReport struct {
	Agents   []*agentdef.Definition // agents without faults, sorted by name
	Faults   []error                // reasons why a worker would not start
	Warnings []string               // possible mistakes that are allowed

	scripts demo.Scripts // demo scripts of the folder
	faulty  []string     // names of the agents with faults
	unread  bool         // the folder could not be read, or has no agent
}

// CheckAgents reads the agents and demo scripts of a folder, and checks them against settings and tools.
// Workers and "turnctl agents check" use it.
func CheckAgents(dir string, cfg *config.Config, toolbox Toolbox) AgentsReport {
	var report AgentsReport
	readings, err := agentdef.ReadAll(dir)
	if err != nil {
		report.Faults = append(report.Faults, err)
	}
	report.unread = err != nil || len(readings) == 0
	scripts, wrong := demo.Load(dir)
	if wrong != nil {
		report.Faults = append(report.Faults, wrong)
	}
	report.scripts = scripts
	for _, file := range agentdef.Overlooked(dir) {
		report.warn(file, 0, "this file is ignored: the name of an agent's file must end in .md, in lower case")
	}
	report.checkAll(readings, namesOf(readings), cfg, toolbox)
	if len(readings) == 0 && err == nil {
		report.Faults = append(report.Faults,
			fmt.Errorf("the folder %s has no agent: put a file NAME.md there, or set agents_dir", dir))
	}
	return report
}

// CheckAgent is CheckAgents for one file of a folder. It reports faults only in demo scripts that the
// agent uses.
func CheckAgent(file string, cfg *config.Config, toolbox Toolbox) AgentsReport {
	var report AgentsReport
	reading := agentdef.Read(file)
	dir := filepath.Dir(file)
	scripts, wrong := demo.Load(dir)
	report.scripts = scripts
	if reading.Definition != nil {
		report.Faults = append(report.Faults, faultsOfScripts(wrong, modelsOf(reading.Definition, cfg))...)
	}
	others, _ := agentdef.ReadAll(dir) // only for their names
	report.checkAll([]agentdef.Reading{reading}, namesOf(others), cfg, toolbox)
	return report
}

// faultsOfScripts returns the faults of the demo scripts of these models.
func faultsOfScripts(wrong error, models []namedModel) (faults []error) {
	for _, err := range strictyaml.Split(wrong) {
		for _, fault := range strictyaml.Split(err) {
			problem, ok := errors.AsType[*agentdef.Problem](fault)
			if ok && slices.ContainsFunc(models, func(m namedModel) bool {
				return demoProvider+"/"+strings.TrimSuffix(filepath.Base(problem.Path), demo.Extension) == m.name
			}) {
				faults = append(faults, fault)
			}
		}
	}
	return faults
}

// namesOf returns the agents' names by their files, with or without faults.
func namesOf(readings []agentdef.Reading) map[string]bool {
	names := map[string]bool{}
	for _, r := range readings {
		names[strings.TrimSuffix(filepath.Base(r.Path), ".md")] = true
	}
	return names
}

// checkAll checks the definitions that could be read. It checks a file with syntax faults too, to report
// all faults at once.
func (r *AgentsReport) checkAll(readings []agentdef.Reading, names map[string]bool, cfg *config.Config,
	toolbox Toolbox) {
	for _, reading := range readings {
		if reading.Definition != nil {
			r.checkSubAgents(&reading, names)
			r.check(&reading, cfg, toolbox)
		}
		if len(reading.Faults) > 0 {
			r.Faults = append(r.Faults, reading.Faults...)
			r.faulty = append(r.faulty, strings.TrimSuffix(filepath.Base(reading.Path), ".md"))
			continue
		}
		r.Agents = append(r.Agents, reading.Definition)
	}
	slices.SortFunc(r.Agents, func(a, b *agentdef.Definition) int { return cmp.Compare(a.Name, b.Name) })
}

func (r *AgentsReport) warn(file string, line int, format string, args ...any) {
	problem := agentdef.Problem{Path: file, Line: line, Text: fmt.Sprintf(format, args...)}
	r.Warnings = append(r.Warnings, problem.Error())
}

// check adds faults and warnings of a definition that depend on settings and tools.
func (r *AgentsReport) check(file *agentdef.Reading, cfg *config.Config, toolbox Toolbox) {
	d := file.Definition
	if err := d.Check(cfg.Bounds); err != nil {
		for _, fault := range strictyaml.Split(err) {
			addBound(file, fault)
		}
	} else if err := bounds.Check(cfg.BoundsFor(d)); err != nil {
		for _, fault := range strictyaml.Split(err) {
			addBound(file, fault)
		}
	}
	checkNames(file, cfg)
	for _, schedule := range d.Schedules {
		if warning := agentdef.CronWarning(schedule.Cron); warning != "" {
			r.warn(d.Path, file.Line("schedule", "cron"), "schedule.cron %s", warning)
		}
	}
	r.checkRules(file, toolbox.Rules)
	for _, model := range modelsOf(d, cfg) {
		if err := checkModel(model.name, cfg, r.scripts, filepath.Dir(d.Path)); err != nil {
			file.Add(file.Line(model.key, model.item), err.Error())
		} else if err := checkAnswers(model.name, cfg, d.MaxOutputTokens, d.Temperature); err != nil {
			file.Add(file.Line(model.key, model.item), err.Error())
		}
	}
	r.checkTools(file, cfg, toolbox)
	checkMCP(file, cfg, toolbox)
	if key, item, problem := checkRoot(d); problem != "" {
		r.warn(file.Path, file.Line(key, item), "%s", problem)
	}
}

// checkTools adds faults and warnings of the tools that a definition lists.
func (r *AgentsReport) checkTools(file *agentdef.Reading, cfg *config.Config, toolbox Toolbox) {
	d := file.Definition
	for _, name := range d.Tools {
		if name == turnkeeper.ToolSpawnAgent && len(d.SubAgents) > 0 {
			continue
		}
		line := file.Line("tools", name)
		if t, ok := cfg.Tools[name]; ok && t.Command != nil {
			r.checkProgram(file, line, t)
		}
		if _, err := toolbox.Subset([]string{name}); err == nil {
			if spec, _ := toolbox.Spec(name); spec.Detached && !cfg.BoundsFor(d).Paging {
				file.Add(line,
					fmt.Sprintf("tools has %q, which runs detached: its result could not be read with paging: false",
						name))
			}
			continue
		} else if toolbox.Whole {
			file.Add(line, err.Error()+toolbox.hint())
		} else {
			r.warn(file.Path, line, "%s", strange(name, toolbox.Registry))
		}
	}
}

// checkNames refuses names of schedules that contain a secret: names are stored and shown unmasked. The
// fault does not repeat the name.
func checkNames(file *agentdef.Reading, cfg *config.Config) {
	if len(file.Definition.Schedules) == 0 {
		return
	}
	masker := cfg.Masker()
	for _, s := range file.Definition.Schedules {
		for _, name := range []struct{ key, text string }{{"name", s.Name}, {"conversation", s.Conversation}} {
			if masker.String(name.text) != name.text {
				file.Add(file.Line("schedule", ""),
					"schedule."+name.key+
						" contains a secret, or text that looks like one: choose another name, because names are stored and shown unmasked")
			}
		}
	}
}

// hint returns the advice for a tool or server that a running worker does not have.
func (t Toolbox) hint() string {
	if !t.Running {
		return ""
	}
	return "; if you added it after this worker was started, restart the worker"
}

// addBound adds a fault whose text begins with its key.
func addBound(file *agentdef.Reading, fault error) {
	text := fault.Error()
	if problem, ok := errors.AsType[*agentdef.Problem](fault); ok {
		text = problem.Text
	}
	word, _, _ := strings.Cut(text, " ")
	key, item, _ := strings.Cut(word, ".")
	file.Add(file.Line(key, item), text)
}

// A namedModel is a model, and the key and the item in it by which it is set.
type namedModel struct{ key, item, name string }

// modelsOf returns the models that the agent uses.
func modelsOf(d *agentdef.Definition, cfg *config.Config) []namedModel {
	all := []namedModel{{"model", "", cmp.Or(d.Model, cfg.DefaultModel)}}
	for _, name := range d.FallbackModels {
		all = append(all, namedModel{"fallback_models", name, name})
	}
	for _, at := range []struct{ level, model string }{
		{string(survival.Low), d.Levels.Low.Model}, {string(survival.Critical), d.Levels.Critical.Model},
	} {
		if at.model != "" {
			all = append(all, namedModel{"levels", at.level, at.model})
		}
	}
	if extraction := cmp.Or(d.ExtractionModel, cfg.ExtractionModel); extraction != "" {
		all = append(all, namedModel{"extraction_model", "", extraction})
	}
	return all
}

// ModelsOf returns the names of the models that an agent uses, without duplicates.
func ModelsOf(d *agentdef.Definition, cfg *config.Config) (names []string) {
	for _, m := range modelsOf(d, cfg) {
		if !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	return names
}

// checkSubAgents warns of sub-agents without a file: they may be on other workers.
func (r *AgentsReport) checkSubAgents(file *agentdef.Reading, names map[string]bool) {
	d := file.Definition
	for _, name := range d.SubAgents {
		if !names[name] {
			r.warn(file.Path, file.Line("sub_agents", name),
				"sub_agents has %q, but this folder has no such agent: spawning it fails unless another worker has it",
				name)
		}
	}
	if len(d.SubAgents) > 0 && slices.Contains(d.Tools, turnkeeper.ToolSpawnAgent) {
		r.warn(file.Path, file.Line("tools", turnkeeper.ToolSpawnAgent),
			"%s can be removed from tools: an agent with sub_agents always has it", turnkeeper.ToolSpawnAgent)
	}
}

// strange returns a warning about a tool that only the user's own worker program can have.
func strange(name string, known *tools.Registry) string {
	hint := ""
	if near := known.Nearest(name); near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", near)
	}
	return fmt.Sprintf(
		"the tool %q is neither built in nor in the config file%s: only your own worker program with this tool can start with this agent; known tools: %s",
		name, hint, strings.Join(known.Names(), ", "))
}

// checkProgram warns of a missing program: it may exist on the worker's machine, or be installed later.
func (r *AgentsReport) checkProgram(file *agentdef.Reading, line int, t config.Tool) {
	if _, err := program.Find(t.Command[0]); err != nil {
		r.warn(file.Path, line, "calls of the tool %q fail here: %v", t.Name, err)
	}
	if t.Dir == "" {
		return
	}
	if info, err := os.Stat(t.Dir); err != nil || !info.IsDir() {
		r.warn(file.Path, line, "calls of the tool %q fail here: its folder %s does not exist", t.Name, t.Dir)
	}
}

// withoutRoot returns a warning if one of an agent's tools needs a root folder, which it does not have.
func withoutRoot(names []string) (key, item, problem string) {
	for _, name := range names {
		if builtin.NeedsRoot(name) {
			return "tools", name, fmt.Sprintf("%s needs a folder: set root, or each of its calls will fail", name)
		}
	}
	return "", "", ""
}

// checkRoot returns a warning about the folder of the file tools and its position; empty: none. It is
// not a fault: the folder may be created later, even by a tool.
func checkRoot(d *agentdef.Definition) (key, item, problem string) {
	root := d.Root
	if root == "" {
		return withoutRoot(d.Tools)
	}
	switch info, err := os.Stat(root); {
	case errors.Is(err, os.ErrNotExist):
		problem = fmt.Sprintf("root is %s, which does not exist here: the file tools fail until it exists", root)
	case err != nil:
		problem = fmt.Sprintf("root cannot be read: %v", err)
	case !info.IsDir():
		problem = fmt.Sprintf("root is %s, which is not a folder: the file tools will fail", root)
	}
	return "root", "", problem
}
