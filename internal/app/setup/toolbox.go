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

// NewToolbox returns a registry of all tools that an agent of this process can list.
func NewToolbox(agents *Agents, store *operate.Store, cfg *config.Config, masker *redact.Masker,
	own *netguard.Listeners, more []tools.Tool) (*tools.Registry, error) {
	all := builtin.All(builtin.Deps{Root: agents.root, AllowPrivateHosts: agents.privateHosts, Own: own,
		Files: journal.NewFiles(store.DB), Notes: notes{journal.New(store.DB)}})
	all = append(all, more...)
	// First check them unmasked: the registry cannot see errors of tools.New behind the mask.
	if _, err := tools.NewRegistry(all...); err != nil {
		return nil, err
	}
	registry, err := tools.NewRegistry(maskTools(all, masker)...)
	if err != nil {
		return nil, err
	}
	return registry, errors.Join(checkReserved(registry), configure(registry, cfg, true))
}

// checkReserved refuses a tool with the reserved name spawn_agent.
func checkReserved(registry *tools.Registry) error {
	if _, taken := registry.Get(turnkeeper.ToolSpawnAgent); taken {
		return fmt.Errorf("tool %q: this name is reserved for calling sub-agents; choose another",
			turnkeeper.ToolSpawnAgent)
	}
	return nil
}

// KnownTools returns the tools that every worker with these settings has, and more. Use them for their names and
// schemas: they cannot be run.
func KnownTools(cfg *config.Config, more ...tools.Tool) (*tools.Registry, error) {
	registry, err := tools.NewRegistry(slices.Concat(builtin.Known(), Programs(cfg), more)...)
	if err == nil {
		err = errors.Join(checkReserved(registry), configure(registry, cfg, false))
	}
	return registry, err
}

// notes stores the agents' notes in the database.
type notes struct{ *journal.Store }

func (n notes) ListNotes(ctx context.Context, owner turnkeeper.ConversationKey) ([]builtin.Note, error) {
	stored, err := n.Store.ListNotes(ctx, owner)
	list := make([]builtin.Note, len(stored))
	for i, s := range stored {
		list[i] = builtin.Note(s)
	}
	return list, err
}
