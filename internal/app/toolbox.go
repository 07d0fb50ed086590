package app

import (
	"context"
	"slices"

	"turnkeeper/internal/config"
	"turnkeeper/internal/redact"
	"turnkeeper/storage"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// newToolbox has every tool that an agent of this process can list.
func newToolbox(agents *agents, store *storage.Store, masker *redact.Masker, more []tools.Tool) (*tools.Registry, error) {
	all := builtin.All(builtin.Deps{Root: agents.root, AllowPrivateHosts: agents.privateHosts, Notes: notes{store}})
	all = append(all, more...)
	// First as they are: behind the mask, the registry cannot see what tools.New
	// found wrong.
	if _, err := tools.NewRegistry(all...); err != nil {
		return nil, err
	}
	return tools.NewRegistry(maskTools(all, masker)...)
}

// KnownTools are the tools that every worker with these settings has, and more
// beside them, to be asked for their names and schemas; they cannot be run.
func KnownTools(cfg *config.Config, more ...tools.Tool) (*tools.Registry, error) {
	return tools.NewRegistry(slices.Concat(builtin.All(builtin.Deps{Notes: noNotes{}}), Programs(cfg), more)...)
}

// noNotes stands for a store of notes that nobody opens.
type noNotes struct{ builtin.NoteStore }

// notes are the agents' notes in the database.
type notes struct{ *storage.Store }

func (n notes) ListNotes(ctx context.Context, agent string) ([]builtin.Note, error) {
	stored, err := n.Store.ListNotes(ctx, agent)
	list := make([]builtin.Note, len(stored))
	for i, s := range stored {
		list[i] = builtin.Note(s)
	}
	return list, err
}
