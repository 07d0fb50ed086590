package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
	"turnkeeper/storage"
	"turnkeeper/tools"
)

// agents are the agents of the folder, as last loaded.
type agents struct {
	current atomic.Pointer[agentdef.Set]
}

// load reads and checks the folder. With any fault nothing changes.
func (a *agents) load(cfg *config.Config, registry *tools.Registry) error {
	definitions, err := agentdef.Load(cfg.AgentsDir)
	if err != nil {
		return err
	}
	if len(definitions) == 0 {
		return NoAgents(cfg.AgentsDir)
	}
	var faults []error
	for _, d := range definitions {
		faults = append(faults, CheckAgent(d, cfg, registry))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	a.current.Store(agentdef.NewSet(definitions))
	return nil
}

// NoAgents is the fault of a folder without an agent.
func NoAgents(dir string) error {
	return fmt.Errorf("the folder %s has no agent: put a file NAME.md there, or set agents_dir", dir)
}

// CheckAgent says why a well-formed agent would not run with these settings and
// tools, or nil. It joins every fault; each names the agent's file.
func CheckAgent(d *agentdef.Definition, cfg *config.Config, registry *tools.Registry) error {
	var faults []error
	if err := d.Check(cfg.Bounds); err != nil {
		faults = append(faults, err) // names the file itself
	} else if err := cfg.BoundsFor(d).Check(); err != nil {
		faults = append(faults, fmt.Errorf("%s: %w", d.Path, err))
	}
	for _, model := range append([]string{cmp.Or(d.Model, cfg.DefaultModel)}, d.FallbackModels...) {
		if err := checkProvider(model, cfg); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", d.Path, err))
		}
	}
	if _, err := registry.Subset(d.Tools); err != nil {
		faults = append(faults, fmt.Errorf("%s: %w", d.Path, err))
	}
	return errors.Join(faults...)
}

// register makes the agents known to the database.
func (a *agents) register(ctx context.Context, store *storage.Store) error {
	var all []turnkeeper.AgentRegistration
	for d := range a.current.Load().All() {
		all = append(all, registrationOf(d))
	}
	return store.RegisterAgents(ctx, all)
}

func registrationOf(d *agentdef.Definition) turnkeeper.AgentRegistration {
	r := turnkeeper.AgentRegistration{
		Name: d.Name, Description: d.Description, DefinitionHash: d.Hash, Definition: d.Source,
		LanePerConversation: d.LanePerConversation,
	}
	for _, s := range d.Schedules {
		r.Schedules = append(r.Schedules, turnkeeper.Schedule{
			Agent: d.Name, Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, Conversation: s.Conversation, Message: s.Message,
		})
	}
	return r
}

func (a *agents) names() []string { return a.current.Load().Names() }

// root is the folder of an agent's files.
func (a *agents) root(agent string) string {
	if d, ok := a.current.Load().Get(agent); ok {
		return d.Root
	}
	return ""
}

func (a *agents) privateHosts(agent string) []string {
	if d, ok := a.current.Load().Get(agent); ok {
		return d.AllowPrivateHosts
	}
	return nil
}
