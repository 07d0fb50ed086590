package turnctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"turnkeeper"
	turnevents "turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/cli/clitest"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/views"
)

// TestTranscript prints a turn whose second round was lost and started again.
func TestTranscript(t *testing.T) {
	event := func(kind turnkeeper.EventType, round int, data any) turnkeeper.Event {
		text, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		return turnkeeper.Event{TurnID: 41, Type: kind, Round: round, Data: text}
	}
	text := func(round int, parts ...string) []turnkeeper.Event {
		all := []turnkeeper.Event{event(turnkeeper.EventBlockStart, round, turnevents.BlockStartData{Kind: "text"})}
		for _, part := range parts {
			all = append(all, event(turnkeeper.EventBlockDelta, round, turnevents.BlockDeltaData{Text: part}))
		}
		return append(all, event(turnkeeper.EventBlockStop, round, nil))
	}
	var events []turnkeeper.Event
	add := func(more ...turnkeeper.Event) { events = append(events, more...) }
	add(event(turnkeeper.EventTurnStart, 0, turnevents.TurnStartData{Agent: "clerk", Message: 12, Attempt: 1}))
	add(event(turnkeeper.EventRoundStart, 1, turnevents.RoundStartData{Of: 3}))
	add(event(turnkeeper.EventBlockStart, 1, turnevents.BlockStartData{Kind: "thinking"}),
		event(turnkeeper.EventBlockDelta, 1, turnevents.BlockDeltaData{Thinking: "Hm."}))
	add(text(1, "I look ", "at the\x1b[2J clock.\nThen", " I order.")...)
	add(event(turnkeeper.EventBlockStart, 1, turnevents.BlockStartData{Kind: "tool_use", Tool: "order"}),
		event(turnkeeper.EventBlockDelta, 1, turnevents.BlockDeltaData{Arguments: `{"boxes":3}`}))
	add(event(turnkeeper.EventToolStarted, 1, turnevents.ToolData{Call: "round-1-tool-1", Name: "order"}))
	add(event(turnkeeper.EventToolResult, 1, turnevents.ToolData{Call: "round-1-tool-1", Name: "order",
		State: turnkeeper.CallFailed, Preview: "no boxes", Millis: 2100}))
	add(event(turnkeeper.EventRoundStop, 1, turnevents.RoundStopData{Model: "m", Calls: 1,
		Usage: turnkeeper.Usage{InputTokens: 1200, OutputTokens: 34}}))
	add(event(turnkeeper.EventTurnWaiting, 0, turnevents.TurnWaitingData{Calls: []string{"round-1-tool-2"}}))
	add(event(turnkeeper.EventTurnResumed, 0, turnevents.TurnResumedData{Dispatch: 2}))
	add(event(turnkeeper.EventRoundStart, 2, turnevents.RoundStartData{Of: 3}), event(turnkeeper.EventNotice, 2,
		turnevents.NoticeData{Text: "# System Notice\nThis is turn 2 of 3."}))
	add(text(2, "This is lo")[:2]...)
	add(event(turnkeeper.EventRoundRollback, 2, turnevents.RollbackData{Reason: "the worker was lost"}))
	add(event(turnkeeper.EventRoundStart, 2, turnevents.RoundStartData{Of: 3, Final: true}))
	add(text(2, "There are no boxes.")...)
	said := event(turnkeeper.EventTurnComplete, 0, turnevents.TurnEndData{State: turnkeeper.TurnSucceeded,
		StopReason: turnkeeper.StopNone, Rounds: 2, Calls: 1, Reply: "There are no boxes."})
	summed := event(turnkeeper.EventTurnComplete, 0, turnevents.TurnEndData{State: turnkeeper.TurnDegraded,
		StopReason: turnkeeper.StopMaxRounds, Rounds: 2, Calls: 1, Reply: "Tool results: 0 succeeded, 1 failed."})
	for name, last := range map[string]turnkeeper.Event{"said": said, "summed": summed} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			printer := newEventPrinter(&term.Screen{W: &out})
			for _, e := range append(events[:len(events):len(events)], last) {
				if err := printer.show(e); err != nil {
					t.Fatal(err)
				}
			}
			printer.end()
			golden.File(t, "testdata/events-"+name+".txt", out.String())
			clitest.Harmless(t, out.String())
		})
	}
}

// TestEveryEventIsPrinted compares what is printed of each kind of event with testdata, with data of which no field,
// and of which each
// field, is empty.
func TestEveryEventIsPrinted(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	show := func(e turnkeeper.Event) {
		printer := newEventPrinter(&term.Screen{W: &b, Colour: true})
		if err := printer.show(e); err != nil {
			t.Fatal(err)
		}
		printer.end()
	}
	for _, row := range views.EventRows {
		fmt.Fprintf(&b, "== %s\n", row.Type)
		e := turnkeeper.Event{TurnID: 41, Seq: 7, Type: row.Type, Round: 2, Block: 3}
		show(e)
		if row.Data == nil {
			continue
		}
		data := reflect.New(reflect.TypeOf(row.Data))
		golden.Fill(data.Interface(), 100)
		var err error
		if e.Data, err = json.Marshal(data.Interface()); err != nil {
			t.Fatal(err)
		}
		show(e)
	}
	golden.File(t, "testdata/events-each.txt", strings.ReplaceAll(b.String(), "\x1b", "^"))
}

// TestATranscriptReportsLostWrites checks that an event that cannot be written is an error, whatever it is.
func TestATranscriptReportsLostWrites(t *testing.T) {
	t.Parallel()
	for _, kind := range []turnkeeper.EventType{turnkeeper.EventTurnStart, turnkeeper.EventNotice,
		turnkeeper.EventTurnComplete} {
		printer := newEventPrinter(&term.Screen{W: broken{}})
		data := json.RawMessage(`{"text":"a","reply":"b"}`)
		if err := printer.show(turnkeeper.Event{Type: kind, Data: data}); !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

var errBroken = errors.New("the reader is gone")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }
