package journal_test

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/storagetest"
)

// TestATurnKeepsItsDefinition changes an agent's file while a turn of it is open: the turn goes on with
// the old definition, and the next one has the new.
func TestATurnKeepsItsDefinition(t *testing.T) {
	h := newEnv(t)
	open := h.Turn("x")
	old, hash := string(open.Record.Definition), open.Record.Turn.DefinitionHash
	changed := storagetest.Registration("clerk", false)
	changed.Definition, changed.DefinitionHash = []byte("---\nmax_rounds: 1\n---\nChanged.\n"), strings.Repeat("d", 64)
	if err := h.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{changed}); err != nil {
		t.Fatal(err)
	}
	open = h.Again(open, "worker-2")
	if got := open.Record; old == "" || string(got.Definition) != old || got.Turn.DefinitionHash != hash {
		t.Errorf("the open turn goes on with %q of hash %s", got.Definition, got.Turn.DefinitionHash)
	}
	open.Finish(t, "done")
	next := h.Turn("y").Record
	if string(next.Definition) != string(changed.Definition) || next.Turn.DefinitionHash != changed.DefinitionHash {
		t.Errorf("the next turn has %q of hash %s", next.Definition, next.Turn.DefinitionHash)
	}
}
