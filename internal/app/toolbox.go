package app

import (
	"context"

	"turnkeeper/internal/redact"
	"turnkeeper/storage"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// newToolbox has every tool that an agent of this process can list.
func newToolbox(agents *agents, store *storage.Store, masker *redact.Masker, more []tools.Tool) (*tools.Registry, error) {
	all := builtin.All(builtin.Deps{Root: agents.root, AllowPrivateHosts: agents.privateHosts, Notes: notes{store}})
	return tools.NewRegistry(maskTools(append(all, more...), masker)...)
}

// BuiltinTools are the tools that every worker has, to be asked for their names
// and schemas; they cannot be run.
func BuiltinTools() (*tools.Registry, error) {
	return tools.NewRegistry(builtin.All(builtin.Deps{Notes: noNotes{}})...)
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
