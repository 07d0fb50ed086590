package setup

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference/demo"
	"turnkeeper/internal/config"
	"turnkeeper/policy"
	"turnkeeper/storage/operate"
	"turnkeeper/tools"
)

// Agents holds the agents and demo scripts of a folder, as last loaded. It is safe for concurrent use.
type Agents struct {
	Rules   policy.Compiler // of the agents' rules about calls; nil: they are not checked
	Current atomic.Pointer[agentdef.Set]
	scripts atomic.Pointer[demo.Scripts]
}

// Load reads and checks the folder. If there are faults, the error matches ErrAgents; the first Load then changes
// nothing. A later one loads the other files: an agent or script whose file has a fault keeps its old version, and a
// new one is left out.
func (a *Agents) Load(cfg *config.Config, registry *tools.Registry, log *zap.Logger) error {
	report := CheckAgents(cfg.AgentsDir, cfg, Toolbox{Registry: registry, Whole: true, Running: a.Current.Load() != nil,
		Rules: a.Rules})
	var faults error
	if len(report.Faults) > 0 {
		faults = &agentsError{errors.Join(report.Faults...)}
		if a.Current.Load() == nil || report.unread {
			return faults
		}
		a.keepOld(&report)
	}
	for _, warning := range report.Warnings {
		log.Warn(warning)
	}
	a.scripts.Store(&report.scripts) // before the agents that use them
	a.Current.Store(agentdef.NewSet(report.Agents))
	return faults
}

// keepOld adds the old versions of faulty files, and of scripts that could not be read, to a report.
func (a *Agents) keepOld(report *AgentsReport) {
	for old := range a.Current.Load().All() {
		if slices.Contains(report.faulty, old.Name) {
			report.Agents = append(report.Agents, old)
		}
	}
	scripts := demo.Scripts{}
	if old := a.scripts.Load(); old != nil {
		maps.Copy(scripts, *old)
	}
	for name, script := range report.scripts {
		if script != nil { // it could be read
			scripts[name] = script
		}
	}
	report.scripts = scripts
}

// Script returns a demo script of the folder.
func (a *Agents) Script(name string) (*demo.Script, bool) {
	scripts := a.scripts.Load()
	if scripts == nil {
		return nil, false
	}
	script, ok := (*scripts)[name]
	return script, ok
}

// ErrAgents matches errors about faults in agents' files.
var ErrAgents = errors.New("the agents' files have faults")

type agentsError struct{ faults error }

func (e *agentsError) Error() string   { return e.faults.Error() }
func (e *agentsError) Unwrap() []error { return []error{ErrAgents, e.faults} }

// Register registers the agents in the database: all, or with names these. It returns those whose rows could not be
// written: they are set aside, and keep the version that they had.
func (a *Agents) Register(ctx context.Context, store *operate.Store, cfg *config.Config,
	names ...string) (failed []string, err error) {
	var all []turnkeeper.AgentRegistration
	for d := range a.Current.Load().All() {
		if len(names) == 0 || slices.Contains(names, d.Name) {
			all = append(all, registrationOf(d, cfg))
		}
	}
	return store.RegisterEach(ctx, all)
}

// TellFileless logs the registered agents without a file here; other workers may have their files.
func (a *Agents) TellFileless(ctx context.Context, store *operate.Store, log *zap.Logger) {
	registered, err := store.Agents(ctx)
	if err != nil {
		log.Warn("could not list the registered agents", zap.Error(err))
		return
	}
	var without []string
	for _, r := range registered {
		if _, ok := a.Current.Load().Get(r.Name); !ok {
			without = append(without, r.Name)
		}
	}
	if len(without) > 0 {
		log.Info("agents without a file here stay registered with their last definition",
			zap.Strings("agents", without))
	}
}

func registrationOf(d *agentdef.Definition, cfg *config.Config) turnkeeper.AgentRegistration {
	r := turnkeeper.AgentRegistration{
		Name: d.Name, Description: d.Description, DefinitionHash: d.Hash, Definition: d.Source,
		LanePerConversation: d.LanePerConversation, Models: usableModels(d.Chain(cfg.DefaultModel), cfg),
		GiveUpAfter: d.Bounds(cfg.Bounds).GiveUpAfter,
		MaxRunning:  d.MaxRunning, DayTokens: d.Budget.DayTokens, DayCalls: d.Budget.DayCalls, Levels: levelsOf(d, cfg),
	}
	for _, s := range d.Schedules {
		r.Schedules = append(r.Schedules, turnkeeper.Schedule{
			Agent: d.Name, Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, Conversation: s.Conversation,
			Message: s.Message,
		})
	}
	return r
}

// levelsOf returns what happens at the survival levels of an agent, as it is registered.
func levelsOf(d *agentdef.Definition, cfg *config.Config) []byte {
	rules := d.Rules(cfg.DefaultModel)
	if len(rules) == 0 {
		return nil
	}
	for level, effect := range rules {
		if effect.Models != nil {
			effect.Models = usableModels(effect.Models, cfg)
			rules[level] = effect
		}
	}
	text, err := json.Marshal(rules)
	if err != nil {
		panic("agents: " + err.Error()) // it holds only texts and numbers
	}
	return text
}

// usableModels returns the models of a chain whose providers are configured here, because others are
// never called; all models if no provider is configured.
func usableModels(chain []string, cfg *config.Config) []string {
	configured := append([]string{demoProvider}, cfg.ProviderNames()...)
	usable := slices.DeleteFunc(slices.Clone(chain), func(model string) bool {
		provider, _, _ := strings.Cut(model, "/")
		return !slices.Contains(configured, provider)
	})
	if len(usable) == 0 {
		return chain
	}
	return usable
}

// Names returns the agents' names.
func (a *Agents) Names() []string { return a.Current.Load().Names() }

// root returns the root folder of an agent.
func (a *Agents) root(agent string) string {
	if d, ok := a.Current.Load().Get(agent); ok {
		return d.Root
	}
	return ""
}

// Describe returns the description of an agent of this process.
func (a *Agents) Describe(name string) (string, bool) {
	d, ok := a.Current.Load().Get(name)
	if !ok {
		return "", false
	}
	return d.Description, true
}

func (a *Agents) privateHosts(agent string) []string {
	if d, ok := a.Current.Load().Get(agent); ok {
		return d.AllowPrivateHosts
	}
	return nil
}
