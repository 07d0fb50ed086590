package turnlog_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/internal/arguments"
	"turnkeeper/internal/turnlog"
)

// TestAStartSetsArguments tests what a start says about the arguments of its call.
func TestAStartSetsArguments(t *testing.T) {
	planned := turnkeeper.ToolCall{Name: "pay", Arguments: `{"n":900}`, ArgsHash: "of the plan"}
	edited := planned
	edited.RunArgs, edited.ArgsHash = `{"n":90}`, "of the edit"
	for name, c := range map[string]struct {
		call       turnkeeper.ToolCall
		start      turnlog.CallStart
		args, hash string
	}{
		"as planned":                 {planned, turnlog.CallStart{}, `{"n":900}`, "of the plan"},
		"edited":                     {planned, turnlog.CallStart{RunArgs: `{"n":90}`, ArgsHash: "of the edit"}, `{"n":90}`, "of the edit"},
		"again, as planned":          {edited, turnlog.CallStart{}, `{"n":900}`, arguments.Hash("pay", `{"n":900}`)},
		"again, with other argument": {edited, turnlog.CallStart{RunArgs: `{"n":9}`, ArgsHash: "other"}, `{"n":9}`, "other"},
	} {
		if c.start.SetArguments(&c.call); c.call.AsRun() != c.args || c.call.ArgsHash != c.hash || c.call.Arguments != `{"n":900}` {
			t.Errorf("%s: %s, hash %s, planned %s", name, c.call.AsRun(), c.call.ArgsHash, c.call.Arguments)
		}
	}
}
