package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/config"
	"turnkeeper/internal/netguard"
	"turnkeeper/internal/redact"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// NewToolbox has every tool that an agent of this process can list.
func NewToolbox(agents *Agents, store *operate.Store, cfg *config.Config, masker *redact.Masker, own *netguard.Listeners, more []tools.Tool) (*tools.Registry, error) {
	all := builtin.All(builtin.Deps{Root: agents.root, AllowPrivateHosts: agents.privateHosts, Own: own, Notes: notes{journal.New(store.DB)}})
	all = append(all, more...)
	// First as they are: behind the mask, the registry cannot see what tools.New
	// found wrong.
	if _, err := tools.NewRegistry(all...); err != nil {
		return nil, err
	}
	registry, err := tools.NewRegistry(maskTools(all, masker)...)
	if err != nil {
		return nil, err
	}
	return registry, errors.Join(checkReserved(registry), configure(registry, cfg, true))
}

// checkReserved refuses a tool with the name of one that every agent with sub_agents has.
func checkReserved(registry *tools.Registry) error {
	if _, taken := registry.Get(turnkeeper.ToolSpawnAgent); taken {
		return fmt.Errorf("tool %q: the name is that of the tool by which agents give work to agents; give yours another", turnkeeper.ToolSpawnAgent)
	}
	return nil
}

// KnownTools are the tools that every worker with these settings has, and more
// beside them, to be asked for their names and schemas; they cannot be run.
func KnownTools(cfg *config.Config, more ...tools.Tool) (*tools.Registry, error) {
	registry, err := tools.NewRegistry(slices.Concat(builtin.All(builtin.Deps{Notes: noNotes{}}), Programs(cfg), more)...)
	if err == nil {
		err = errors.Join(checkReserved(registry), configure(registry, cfg, false))
	}
	return registry, err
}

// noNotes stands for a store of notes that nobody opens.
type noNotes struct{ builtin.NoteStore }

// notes are the agents' notes in the database.
type notes struct{ *journal.Store }

func (n notes) ListNotes(ctx context.Context, agent string) ([]builtin.Note, error) {
	stored, err := n.Store.ListNotes(ctx, agent)
	list := make([]builtin.Note, len(stored))
	for i, s := range stored {
		list[i] = builtin.Note(s)
	}
	return list, err
}
