package follow

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"turnkeeper"
	turnevents "turnkeeper/agentturn/transcript"
	"turnkeeper/internal/cli/clitest"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/golden"
)

// watchedTurn returns the events of a turn with a thought, calls that succeed and fail, a retracted round and a reply.
func watchedTurn(t *testing.T) []turnkeeper.Event {
	t.Helper()
	event := func(kind turnkeeper.EventType, round int, data any) turnkeeper.Event {
		raw, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		return turnkeeper.Event{Type: kind, Round: round, Data: raw}
	}
	return []turnkeeper.Event{
		event(turnkeeper.EventTurnStart, 0, turnevents.TurnStartData{Agent: "clerk"}),
		event(turnkeeper.EventRoundStart, 1, turnevents.RoundStartData{Of: 3}),
		event(turnkeeper.EventBlockStart, 1, turnevents.BlockStartData{Kind: "thinking"}),
		event(turnkeeper.EventBlockDelta, 1, turnevents.BlockDeltaData{Thinking: "secret thoughts"}),
		event(turnkeeper.EventBlockStart, 1, turnevents.BlockStartData{Kind: "tool_use", Tool: "clock"}),
		event(turnkeeper.EventBlockDelta, 1, turnevents.BlockDeltaData{Arguments: "{}"}),
		event(turnkeeper.EventToolStarted, 1, turnevents.ToolData{Name: "clock", State: turnkeeper.CallStarted}),
		event(turnkeeper.EventToolResult, 1, turnevents.ToolData{Name: "clock", State: turnkeeper.CallSucceeded, Preview: "09:30", Millis: 3}),
		event(turnkeeper.EventToolResult, 1, turnevents.ToolData{Name: "order", State: turnkeeper.CallUnknown, Preview: strings.Repeat("may or may not ", 20)}),
		event(turnkeeper.EventRoundStop, 1, turnevents.RoundStopData{Model: "gpt", Calls: 2, Usage: turnkeeper.Usage{InputTokens: 1200}}),
		event(turnkeeper.EventTurnWaiting, 0, turnevents.TurnWaitingData{For: "detached calls", Calls: []string{"round-1-tool-1", "round-1-tool-2"}}),
		event(turnkeeper.EventTurnResumed, 0, turnevents.TurnResumedData{Dispatch: 2}),
		event(turnkeeper.EventRoundStart, 2, turnevents.RoundStartData{Of: 3}),
		event(turnkeeper.EventBlockStart, 2, turnevents.BlockStartData{Kind: "text"}),
		event(turnkeeper.EventBlockDelta, 2, turnevents.BlockDeltaData{Text: "It is half past"}),
		event(turnkeeper.EventRoundRollback, 2, turnevents.RollbackData{Reason: "the connection broke"}),
		event(turnkeeper.EventRoundStart, 2, turnevents.RoundStartData{Of: 3, Final: true}),
		event(turnkeeper.EventBlockStart, 2, turnevents.BlockStartData{Kind: "text"}),
		event(turnkeeper.EventBlockDelta, 2, turnevents.BlockDeltaData{Text: "It is " + strings.Repeat("very ", 30)}),
		event(turnkeeper.EventBlockDelta, 2, turnevents.BlockDeltaData{Text: "late.\x1b[2J\nGood night."}),
		event(turnkeeper.EventRoundStop, 2, turnevents.RoundStopData{Model: "gpt"}),
		event(turnkeeper.EventTurnError, 0, turnevents.TurnEndData{State: turnkeeper.TurnFailed, Retry: true}),
		event(turnkeeper.EventTurnComplete, 0, turnevents.TurnEndData{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds, Rounds: 2, Calls: 1}),
		{Type: "something_new", Data: json.RawMessage("[1]")},
		{Type: turnkeeper.EventToolResult, Data: json.RawMessage("not JSON")},
	}
}

func TestProgress(t *testing.T) {
	cases := []struct {
		name           string
		terminal       bool
		verbose, never bool
	}{
		{"live", true, false, false},
		{"verbose", false, true, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			s := &term.Screen{W: &out, Terminal: c.terminal}
			if c.terminal {
				s.Columns = 60
			}
			p := NewProgress(s, c.verbose, c.never)
			if !p.shows() {
				t.Fatal("it shows nothing")
			}
			p.begin(7)
			for _, e := range watchedTurn(t) {
				p.show(e)
			}
			p.end()
			if strings.Contains(out.String(), "secret thoughts") {
				t.Error("thoughts are shown")
			}
			// Write each state of the live line as a line of the golden file.
			text := strings.ReplaceAll(out.String(), "\r\x1b[K", "⟲\n")
			clitest.Harmless(t, text)
			for line := range strings.Lines(text) {
				if c.terminal && term.Width(strings.TrimRight(line, "⟲\n")) > 60 {
					t.Errorf("wider than the terminal: %q", line)
				}
			}
			golden.File(t, "testdata/progress-"+c.name+".txt", text)
		})
	}
	for name, quiet := range map[string]*Progress{
		"not a terminal": NewProgress(&term.Screen{}, false, false),
		"JSON":           NewProgress(&term.Screen{Terminal: true}, true, true),
	} {
		if quiet.shows() {
			t.Errorf("%s: it shows something", name)
		}
	}
}
