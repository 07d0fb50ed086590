package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnkeeper"
	turnevents "turnkeeper/agentturn/turnevents"
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
		event(turnkeeper.EventToolResult, 1, turnevents.ToolData{Name: "clock", State: turnkeeper.CallSucceeded,
			Preview: "09:30", Millis: 3}),
		event(turnkeeper.EventToolResult, 1, turnevents.ToolData{Name: "order", State: turnkeeper.CallUnknown,
			Preview: strings.Repeat("may or may not ", 20)}),
		event(turnkeeper.EventRoundStop, 1, turnevents.RoundStopData{Model: "gpt", Calls: 2,
			Usage: turnkeeper.Usage{InputTokens: 1200}}),
		event(turnkeeper.EventTurnWaiting, 0, turnevents.TurnWaitingData{For: "detached calls",
			Calls: []string{"round-1-tool-1", "round-1-tool-2"}}),
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
		event(turnkeeper.EventTurnComplete, 0, turnevents.TurnEndData{State: turnkeeper.TurnDegraded,
			StopReason: turnkeeper.StopMaxRounds, Rounds: 2, Calls: 1}),
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

// TestProgressOfEachEvent compares what is shown of each event, in colour, with testdata: once with all fields of its
// data set, and once for each field without that field.
func TestProgressOfEachEvent(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, verbose := range []bool{false, true} {
		for kind, data := range map[turnkeeper.EventType]any{
			turnkeeper.EventTurnStart:   &turnevents.TurnStartData{},
			turnkeeper.EventRoundStart:  &turnevents.RoundStartData{},
			turnkeeper.EventBlockStart:  &turnevents.BlockStartData{},
			turnkeeper.EventBlockDelta:  &turnevents.BlockDeltaData{},
			turnkeeper.EventToolStarted: &turnevents.ToolData{}, turnkeeper.EventToolResult: &turnevents.ToolData{},
			turnkeeper.EventNotice: &turnevents.NoticeData{}, turnkeeper.EventRoundStop: &turnevents.RoundStopData{},
			turnkeeper.EventRoundRollback: &turnevents.RollbackData{}, turnkeeper.EventAskOpened: &turnevents.AskData{},
			turnkeeper.EventAskClosed:    &turnevents.AskData{},
			turnkeeper.EventTurnWaiting:  &turnevents.TurnWaitingData{},
			turnkeeper.EventTurnResumed:  &turnevents.TurnResumedData{},
			turnkeeper.EventTurnComplete: &turnevents.TurnEndData{},
			turnkeeper.EventTurnError:    &turnevents.TurnEndData{},
		} {
			golden.Fill(data, 100)
			full, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			if end, ok := data.(*turnevents.TurnEndData); ok {
				end.Retry = false
			}
			noRetry, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{string(full), string(noRetry), "{}"} {
				var out bytes.Buffer
				p := NewProgress(&term.Screen{W: &out, Terminal: !verbose, Columns: 60, Colour: true}, verbose, false)
				p.show(turnkeeper.Event{Type: kind, Round: 2, Data: json.RawMessage(text)})
				p.end()
				fmt.Fprintf(&b, "%s, verbose %v: %q\n", kind, verbose, out.String())
			}
		}
	}
	all := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	slices.Sort(all) // the order of a map is random
	golden.File(t, "testdata/progress-each.txt", strings.Join(slices.Compact(all), "\n")+"\n")
}

// source gives events once it is told to.
type source struct{ events []turnkeeper.Event }

func (s source) Subscribe() (<-chan struct{}, func()) { return nil, func() {} }

func (s source) Events(_ context.Context, turn turnkeeper.TurnID, after int64, _ int) (found []turnkeeper.Event,
	_ error) {
	for _, e := range s.events {
		if e.TurnID == turn && e.Seq > after {
			found = append(found, e)
		}
	}
	return found, nil
}

// TestWatcher shows the events of one turn after the other, each once, and nothing if its progress is hidden.
func TestWatcher(t *testing.T) {
	t.Parallel()
	event := func(turn turnkeeper.TurnID, seq int64, kind turnkeeper.EventType, data string) turnkeeper.Event {
		return turnkeeper.Event{TurnID: turn, Seq: seq, Type: kind, Round: 1, Data: json.RawMessage(data)}
	}
	events := source{[]turnkeeper.Event{
		event(7, 1, turnkeeper.EventRoundStart, `{"of":3}`), event(7, 2, turnkeeper.EventTurnError,
			`{"state":"failed","retry":true}`),
		event(8, 1, turnkeeper.EventRoundStart, `{"of":4}`), event(8, 2, turnkeeper.EventTurnComplete,
			`{"state":"succeeded","stop_reason":"none","rounds":1}`),
	}}
	const first = "turn 7\n  round 1 of 3\n  the turn failed; another turn will retry the message\n"
	const second = "turn 8\n  round 1 of 4\n  succeeded after 1 round and 0 tool calls\n"
	for verbose, want := range map[bool]string{true: first + second, false: ""} {
		var out bytes.Buffer
		w := Watcher{Source: events, Progress: NewProgress(&term.Screen{W: &out}, verbose, false)}
		w.Settle(true)
		w.Turn(t.Context(), 7)
		w.Turn(t.Context(), 7)
		w.Turn(t.Context(), 8)
		w.Settle(true)
		w.Settle(false)
		if out.String() != want {
			t.Errorf("verbose %v:\n%s", verbose, out.String())
		}
	}
	var out bytes.Buffer // of a turn that does not end
	w := Watcher{Source: source{events.events[:1]}, Progress: NewProgress(&term.Screen{W: &out}, true, false)}
	w.Turn(t.Context(), 7)
	w.Settle(false)
	if !strings.HasPrefix("turn 7\n  round 1 of 3\n", out.String()) {
		t.Errorf("a turn that does not end:\n%s", out.String())
	}
}
