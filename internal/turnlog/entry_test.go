package turnlog_test

import (
	"testing"

	"turnkeeper"
	"turnkeeper/asks"
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
		"as planned": {planned, turnlog.CallStart{}, `{"n":900}`, "of the plan"},
		"edited": {planned, turnlog.CallStart{RunArgs: `{"n":90}`, ArgsHash: "of the edit"},
			`{"n":90}`, "of the edit"},
		"again, as planned": {edited, turnlog.CallStart{}, `{"n":900}`, arguments.Hash("pay", `{"n":900}`)},
		"again, with other argument": {edited, turnlog.CallStart{RunArgs: `{"n":9}`, ArgsHash: "other"},
			`{"n":9}`, "other"},
	} {
		if c.start.SetArguments(&c.call); c.call.AsRun() != c.args || c.call.ArgsHash != c.hash ||
			c.call.Arguments != `{"n":900}` {
			t.Errorf("%s: %s, hash %s, planned %s", name, c.call.AsRun(), c.call.ArgsHash, c.call.Arguments)
		}
	}
}

// TestWhatAPersonHasDecidedOfATurn has asks about an open call, an answered one, and none.
func TestWhatAPersonHasDecidedOfATurn(t *testing.T) {
	open, answered, none := turnkeeper.CallKey{Round: 2, Ordinal: 1}, turnkeeper.CallKey{Round: 1, Ordinal: 1},
		turnkeeper.CallKey{Round: 2, Ordinal: 2}
	rounds := []turnkeeper.Round{
		{Calls: []turnkeeper.ToolCall{{Key: answered, State: turnkeeper.CallSucceeded}}},
		{Calls: []turnkeeper.ToolCall{{Key: open, State: turnkeeper.CallPlanned}}},
	}
	for name, c := range map[string]struct {
		about            turnkeeper.CallKey
		state            asks.State
		allowed, decided bool
	}{
		"it may run":               {open, asks.Approved, true, true},
		"it may not":               {open, asks.Denied, false, true},
		"nobody answered in time":  {open, asks.Expired, false, true},
		"a person is asked":        {open, asks.Open, false, false},
		"it has run":               {answered, asks.Approved, false, false},
		"a call that is not there": {none, asks.Approved, false, false},
	} {
		record := turnlog.Record{Rounds: rounds, Asks: []asks.Ask{{Question: asks.Question{Kind: asks.KindApprove,
			Call: c.about}, State: c.state}}}
		if allowed, decided := record.Allowed(), record.Decided(); allowed != c.allowed || decided != c.decided {
			t.Errorf("%s: allowed %t, decided %t", name, allowed, decided)
		}
	}
	if record := (turnlog.Record{Rounds: rounds}); record.Allowed() || record.Decided() {
		t.Error("without asks something is decided")
	}
}
