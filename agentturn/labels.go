package agentturn

import (
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

// labelsBefore returns the labels of what a turn knows before its first call: recorded ones, those of its agent's
// inbox, and those of the definitions of the tools that it is offered, which do not change within an execution.
func (t *task) labelsBefore() []policy.Mark {
	marks, turn := t.record.Labels.Before, t.record.Turn
	// it may have been lost before it wrote its labels
	unwritten := func(p turnlog.Past) bool { return len(p.Rounds) == 0 }
	if t.record.Lineage.Parent == 0 && (turn.Trigger == turnkeeper.TriggerMessage || slices.ContainsFunc(
		t.record.History, unwritten)) {
		var inbox []policy.Label
		for _, label := range t.def.InboxLabels {
			inbox = append(inbox, policy.Label(label))
		}
		marks = policy.Join(marks, policy.Marks(inbox, fmt.Sprintf("a message to %s", turn.Agent)))
	}
	for _, spec := range t.offered.Specs() {
		marks = policy.Join(marks, policy.Marks(spec.DefinitionLabels, "the definition of "+spec.Name))
	}
	return marks
}
