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
	"turnkeeper/internal/config"
	"turnkeeper/internal/config/strictyaml"
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
	// Running says that they are those of a worker that runs: what was added to its settings since it was
	// started is not among them.
	Running bool
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
	readings, err := agentdef.ReadAll(dir)
	if err != nil {
		report.Faults = append(report.Faults, err)
	}
	scripts, wrong := demo.Load(dir)
	if wrong != nil {
		report.Faults = append(report.Faults, wrong)
	}
	report.scripts = scripts
	for _, file := range agentdef.Overlooked(dir) {
		report.warn(file, 0, "this file is not read: an agent's file ends in .md, in lower case")
	}
	report.checkAll(readings, namesOf(readings), cfg, toolbox)
	if len(readings) == 0 && err == nil {
		report.Faults = append(report.Faults,
			fmt.Errorf("the folder %s has no agent: put a file NAME.md there, or set agents_dir", dir))
	}
	return report
}

// CheckAgent is CheckAgents for one file of a folder. Of the folder's demo scripts it
// tells the faults of those that the agent names.
func CheckAgent(file string, cfg *config.Config, toolbox Toolbox) AgentsReport {
	var report AgentsReport
	reading := agentdef.Read(file)
	dir := filepath.Dir(file)
	scripts, wrong := demo.Load(dir)
	report.scripts = scripts
	if reading.Definition != nil {
		report.Faults = append(report.Faults, faultsOfScripts(wrong, modelsOf(reading.Definition, cfg))...)
	}
	others, _ := agentdef.ReadAll(dir) // only their names are asked for
	report.checkAll([]agentdef.Reading{reading}, namesOf(others), cfg, toolbox)
	return report
}

// faultsOfScripts are those of the scripts that play these models.
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

// namesOf are the names that the files give, good or not.
func namesOf(readings []agentdef.Reading) map[string]bool {
	names := map[string]bool{}
	for _, r := range readings {
		names[strings.TrimSuffix(filepath.Base(r.Path), ".md")] = true
	}
	return names
}

// checkAll checks what could be read. A file with faults of form is checked further, so
// that all is told in one go.
func (r *AgentsReport) checkAll(readings []agentdef.Reading, names map[string]bool, cfg *config.Config, toolbox Toolbox) {
	for _, reading := range readings {
		if reading.Definition != nil {
			r.checkSubAgents(&reading, names)
			r.check(&reading, cfg, toolbox)
		}
		if len(reading.Faults) > 0 {
			r.Faults = append(r.Faults, reading.Faults...)
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

// check notes what may not be meant, and why a well-formed agent would not run.
func (r *AgentsReport) check(file *agentdef.Reading, cfg *config.Config, toolbox Toolbox) {
	d := file.Definition
	if err := d.Check(cfg.Bounds); err != nil {
		for _, fault := range strictyaml.Split(err) {
			addBound(file, fault)
		}
	} else if err := cfg.BoundsFor(d).Check(); err != nil {
		for _, fault := range strictyaml.Split(err) {
			addBound(file, fault)
		}
	}
	checkNames(file, cfg)
	for _, model := range modelsOf(d, cfg) {
		if err := checkModel(model.name, cfg, r.scripts, filepath.Dir(d.Path)); err != nil {
			file.Add(file.Line(model.key, model.name), err.Error())
		}
	}
	for _, name := range d.Tools {
		if name == turnkeeper.ToolSpawnAgent && len(d.SubAgents) > 0 {
			continue
		}
		line := file.Line("tools", name)
		if t, ok := cfg.Tools[name]; ok && t.Command != nil {
			r.checkProgram(file, line, t)
		}
		if _, err := toolbox.Subset([]string{name}); err == nil {
			continue
		} else if toolbox.Whole {
			file.Add(line, err.Error()+toolbox.hint())
		} else {
			r.warn(file.Path, line, "%s", strange(name, toolbox.Registry))
		}
	}
	checkMCP(file, cfg, toolbox)
	if key, item, problem := checkRoot(d); problem != "" {
		r.warn(file.Path, file.Line(key, item), "%s", problem)
	}
}

// checkNames refuses names of schedules that hold a secret, without repeating it: they are kept and
// shown as they are.
func checkNames(file *agentdef.Reading, cfg *config.Config) {
	if len(file.Definition.Schedules) == 0 {
		return
	}
	masker := cfg.Masker()
	for _, s := range file.Definition.Schedules {
		for _, name := range []struct{ key, text string }{{"name", s.Name}, {"conversation", s.Conversation}} {
			if masker.String(name.text) != name.text {
				file.Add(file.Line("schedule", ""), "schedule."+name.key+" has a secret in it, or what looks like one: names are kept and shown as they are, so choose another")
			}
		}
	}
}

// hint says what to do about a tool or server that a worker which runs does not have.
func (t Toolbox) hint() string {
	if !t.Running {
		return ""
	}
	return "; if it was added since this worker was started, restart the worker"
}

// addBound adds a fault whose text begins with the key that it is about.
func addBound(file *agentdef.Reading, fault error) {
	text := fault.Error()
	if problem, ok := errors.AsType[*agentdef.Problem](fault); ok {
		text = problem.Text
	}
	word, _, _ := strings.Cut(text, " ")
	key, item, _ := strings.Cut(word, ".")
	file.Add(file.Line(key, item), text)
}

// A namedModel is a model and the key that names it.
type namedModel struct{ key, name string }

// modelsOf are those that the agent asks.
func modelsOf(d *agentdef.Definition, cfg *config.Config) []namedModel {
	all := []namedModel{{"model", cmp.Or(d.Model, cfg.DefaultModel)}}
	for _, name := range d.FallbackModels {
		all = append(all, namedModel{"fallback_models", name})
	}
	if extraction := cmp.Or(d.ExtractionModel, cfg.ExtractionModel); extraction != "" {
		all = append(all, namedModel{"extraction_model", extraction})
	}
	return all
}

// ModelsOf are the names of the models that an agent asks, each once.
func ModelsOf(d *agentdef.Definition, cfg *config.Config) (names []string) {
	for _, m := range modelsOf(d, cfg) {
		if !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	return names
}

// checkSubAgents warns of agents that have no file here: they may be on other workers.
func (r *AgentsReport) checkSubAgents(file *agentdef.Reading, names map[string]bool) {
	d := file.Definition
	for _, name := range d.SubAgents {
		if !names[name] {
			r.warn(file.Path, file.Line("sub_agents", name),
				"sub_agents holds %q, and no agent of that name is in this folder: spawning it fails unless another worker has it", name)
		}
	}
	if slices.Contains(d.Tools, turnkeeper.ToolSpawnAgent) {
		r.warn(file.Path, file.Line("tools", turnkeeper.ToolSpawnAgent),
			"%s need not be among the tools: an agent with sub_agents has it", turnkeeper.ToolSpawnAgent)
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

// withoutRoot says which of an agent's tools need a root folder, where it has none.
func withoutRoot(names []string) (key, item, problem string) {
	for _, name := range names {
		if builtin.NeedsRoot(name) {
			return "tools", name, fmt.Sprintf("%s needs a folder, and there is no root: each of its calls fails; set root", name)
		}
	}
	return "", "", ""
}

// checkRoot says what is odd about the folder of the file tools, and where; empty: nothing.
// It may be made later, by a tool even, and so it is no fault.
func checkRoot(d *agentdef.Definition) (key, item, problem string) {
	root := d.Root
	if root == "" {
		return withoutRoot(d.Tools)
	}
	switch info, err := os.Stat(root); {
	case errors.Is(err, os.ErrNotExist):
		problem = fmt.Sprintf("root is %s, which does not exist here: the file tools fail until it does", root)
	case err != nil:
		problem = fmt.Sprintf("root cannot be looked at: %v", err)
	case !info.IsDir():
		problem = fmt.Sprintf("root is %s, which is not a folder: the file tools fail until it is", root)
	}
	return "root", "", problem
}
