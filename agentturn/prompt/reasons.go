package prompt

import (
	"strings"

	"turnkeeper"
)

// The reasons why an epoch begins. Empty: it is the first epoch of its chain.
const (
	EpochRoom       turnkeeper.EpochReason = "room"       // results were dropped, or turns left out
	EpochSummary    turnkeeper.EpochReason = "summary"    // the same, and a new summary takes the place of turns
	EpochDefinition turnkeeper.EpochReason = "definition" // of the agent: prompt, tools, or what requests show of it
	EpochModel      turnkeeper.EpochReason = "model"      // another model, or another way to speak to it
	EpochRefused    turnkeeper.EpochReason = "refused"    // the provider refused the record of the conversation
	EpochHistory    turnkeeper.EpochReason = "history"    // a schedule's rule, or an earlier turn that ended later
	EpochPurged     turnkeeper.EpochReason = "purged"     // what the last epoch showed is deleted
)

// Why says in plain words why an epoch began. Empty: it is the first of its chain.
func Why(e turnkeeper.Epoch) string {
	switch e.Reason {
	case EpochRoom:
		return "the conversation no longer fitted the context window"
	case EpochSummary:
		return "a summary took the place of earlier turns"
	case EpochDefinition:
		return "the agent's prompt, tools or settings had changed"
	case EpochModel:
		return "it went to another model, or spoke to it in another way"
	case EpochRefused:
		return "the provider had refused the record of the conversation"
	case EpochHistory:
		if e.Chain != "" {
			return "each run of the schedule " + e.Chain + " sees only its own history"
		}
		return "an earlier turn had ended late"
	case EpochPurged:
		return "what the requests before it showed is deleted"
	}
	return ""
}

// RecordNote says how the record of the conversation is written after the provider had refused it. Empty: as usual.
func RecordNote(e turnkeeper.Epoch) string {
	var notes []string
	if e.Reason == EpochRefused {
		notes = append(notes, "reasoning of earlier answers was left out, because the provider had refused the record")
	}
	if e.Reasoned {
		notes = append(notes, "answers without reasoning have a text in its place, because the provider demands some")
	}
	if e.BareTurn > 0 {
		notes = append(notes,
			"earlier tool calls are written as text, because the provider had refused the record of the conversation")
	}
	return strings.Join(notes, "; ")
}
