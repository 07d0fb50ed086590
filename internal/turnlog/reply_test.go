package turnlog_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// TestReplyCallsHoldNothingOfTheModel checks what a reply says about refused calls, whose results quote names and
// arguments.
func TestReplyCallsHoldNothingOfTheModel(t *testing.T) {
	for shown, want := range map[string][2]string{
		"tool not found: SECRET\nNothing was run.":                     {"(unknown tool)", "tool not found"},
		"invalid arguments: unexpected \"SECRET\". Nothing was run.":   {"pay", "invalid arguments"},
		"denied: over the limit of 12 tool calls in a turn":            {"pay", "over the limit"},
		"denied: not enough time left in this turn":                    {"pay", "not enough time left in this turn"},
		"denied: a person did not approve this call. Nothing was run.": {"pay", "a person did not approve this call"},
		"denied: the destination SECRET is not allowed":                {"pay", "refused"},
		"SECRET": {"pay", "refused"},
		"":       {"pay", "refused"},
		"denied: a person changed the arguments of this call, but they are invalid: SECRET": {
			"pay", "a person changed the arguments of this call, but they are invalid",
		},
	} {
		calls := turnlog.ReplyCalls([]turnkeeper.Round{
			{Calls: []turnkeeper.ToolCall{{Name: "pay", State: turnkeeper.CallDenied, Shown: shown}}}})
		if got := [2]string{calls[0].Name, calls[0].Problem}; got != want {
			t.Errorf("%q: %q, want %q", shown, got, want)
		}
	}
}
