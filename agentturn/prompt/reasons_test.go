package prompt_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
)

// TestWhyAnEpochBegan checks what is said of each reason, and of how the record is written.
func TestWhyAnEpochBegan(t *testing.T) {
	for _, c := range []struct {
		epoch     turnkeeper.Epoch
		why, note string
	}{
		{turnkeeper.Epoch{}, "", ""},
		{turnkeeper.Epoch{Reason: prompt.EpochRoom}, "the conversation no longer fitted the context window", ""},
		{turnkeeper.Epoch{Reason: prompt.EpochSummary}, "a summary took the place of earlier turns", ""},
		{turnkeeper.Epoch{Reason: prompt.EpochDefinition}, "the agent's prompt, tools or settings had changed", ""},
		{turnkeeper.Epoch{Reason: prompt.EpochModel}, "it went to another model, or spoke to it in another way", ""},
		{turnkeeper.Epoch{Reason: prompt.EpochPurged}, "what the requests before it showed is deleted", ""},
		{turnkeeper.Epoch{Reason: prompt.EpochHistory}, "an earlier turn had ended late", ""},
		{turnkeeper.Epoch{Reason: prompt.EpochHistory, Chain: "hourly"},
			"each run of the schedule hourly sees only its own history", ""},
		{turnkeeper.Epoch{Reason: prompt.EpochRefused}, "the provider had refused the record of the conversation",
			"reasoning of earlier answers was left out, because the provider had refused the record"},
		{turnkeeper.Epoch{Reasoned: true, BareTurn: 1}, "",
			"answers without reasoning have a text in its place, because the provider demands some; " +
				"earlier tool calls are written as text, because the provider had refused the record of the conversation"},
	} {
		if why, note := prompt.Why(c.epoch), prompt.RecordNote(c.epoch); why != c.why || note != c.note {
			t.Errorf("%+v: %q, %q", c.epoch, why, note)
		}
	}
}
