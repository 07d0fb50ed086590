package views

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/stream"
)

// An Event is an entry of the stream of a turn or a message.
type Event struct {
	TurnID turnkeeper.TurnID    `json:"turn_id" doc:"0: not of a turn"`
	Seq    int64                `json:"seq" doc:"number in the turn's stream, from 1; 0: not of a turn's stream"`
	Type   turnkeeper.EventType `json:"type"`
	Round  int                  `json:"round" doc:"0: not of a round"`
	Block  int                  `json:"block" doc:"number in the turn, through all its rounds; 0: not of a block"`
	Data   json.RawMessage      `json:"data" schema:"type=object|null" doc:"null: none"`
	At     time.Time            `json:"at"`
}

// OfEvent returns the view of an event.
func OfEvent(e turnkeeper.Event) Event {
	v := Event(e)
	if len(v.Data) == 0 {
		v.Data = json.RawMessage("null")
	}
	return v
}

// A MessageWaitingData is the data of message_waiting.
type MessageWaitingData struct {
	State turnkeeper.MessageState `json:"state" send:"yes"`
	Waits []Wait                  `json:"waits" send:"yes" doc:"at least one"`
}

// A MessageClosedData is the data of message_closed.
type MessageClosedData struct {
	State   turnkeeper.MessageState `json:"state" send:"yes"`
	Outcome turnkeeper.TurnState    `json:"outcome" schema:"ref=TurnOutcome" send:"yes" doc:"of its last turn"`
	Reply   *Reply                  `json:"reply" send:"yes" doc:"null: there is none, or it was purged"`
}

// An EventRow is a type of event.
type EventRow struct {
	Type    turnkeeper.EventType
	Send    bool // it is sent to those who may only send to the agent, with the fields that are tagged send
	Data    any  // value of the Go type of its data; nil: it has none
	Meaning string
}

// EventRows lists all types of events of turns and messages, in the order in which they may come. The streams of
// messages, the description of the API and docs/events.md read it. A type that is not listed is not sent to those who
// may only send.
var EventRows = []EventRow{
	{stream.MessageWaiting, true, MessageWaitingData{},
		"Streams of messages only: why the message waits now. It comes again when the reasons have changed, " +
			"also while a turn of the message waits. It is not stored: it has no id, and a client that reconnects gets the reasons of that moment."},
	{turnevents.EventsExpired, true, turnevents.EventsExpiredData{},
		"Retention has deleted the earlier events of the turn, from first to last. The turn's last event follows: " +
			"a client that goes on after an older event gets these two."},
	{turnkeeper.EventTurnStart, true, turnevents.TurnStartData{}, "A turn of the message begins."},
	{turnkeeper.EventRoundStart, true, turnevents.RoundStartData{}, "A round begins: the model has begun to answer."},
	{turnkeeper.EventBlockStart, true, turnevents.BlockStartData{}, "A block of the model's answer begins."},
	{turnkeeper.EventBlockDelta, true, turnevents.BlockDeltaData{}, "The next part of a block."},
	{turnkeeper.EventBlockStop, true, nil, "The block has ended."},
	{turnkeeper.EventToolStarted, true, turnevents.ToolData{}, "A tool call starts."},
	{turnkeeper.EventToolResult, true, turnevents.ToolData{},
		"A tool call has ended, or goes on in the background (running). The event has a block number of its own."},
	{turnkeeper.EventNotice, false, turnevents.NoticeData{}, "A message about the turn, or progress of a call."},
	{turnkeeper.EventRoundStop, true, turnevents.RoundStopData{}, "Every call of the round is answered."},
	{turnkeeper.EventRoundRollback, true, turnevents.RollbackData{},
		"All events since the round_start of the same round are void. The round starts again, or is given up."},
	{turnkeeper.EventAskOpened, true, turnevents.AskData{},
		"A person is asked. Who may read finds the question in GET /v1/asks?turn=."},
	{turnkeeper.EventAskClosed, true, turnevents.AskData{},
		"A person has answered, nobody has in time, or the ask was withdrawn. It comes when the turn goes on. " +
			"The end of a turn withdraws its open asks without this event."},
	{turnkeeper.EventTurnWaiting, true, turnevents.TurnWaitingData{},
		"The turn waits until one of these calls has ended, a person has answered one of these asks, " +
			"a model that is down is tried again, or its budget is there again."},
	{turnkeeper.EventTurnResumed, true, turnevents.TurnResumedData{},
		"The turn continues under another grant: it has waited, or another worker has taken it over."},
	{turnkeeper.EventTurnComplete, true, turnevents.TurnEndData{},
		"The turn has succeeded, or is degraded. It is the turn's last event."},
	{turnkeeper.EventTurnError, true, turnevents.TurnEndData{},
		"The turn has failed or was cancelled. It is the turn's last event. With retry, all events of the turn are void."},
	{stream.MessageClosed, true, MessageClosedData{},
		"Streams of messages only, the last event: the message is closed. The body of the reply is what counts: it replaces all text that was streamed."},
}

// sendable maps the types of events that are sent to those who may only send to the names of the fields they get.
var sendable = func() map[turnkeeper.EventType]map[string]bool {
	types := map[turnkeeper.EventType]map[string]bool{}
	for _, row := range EventRows {
		if row.Send {
			types[row.Type] = SentFields(row.Data)
		}
	}
	return types
}()

// SentFields returns the names of the fields of an event's data that are sent to those who may only send.
func SentFields(data any) map[string]bool {
	names := map[string]bool{}
	if data == nil {
		return names
	}
	for f := range reflect.TypeOf(data).Fields() {
		if f.Tag.Get("send") == "yes" {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names[name] = true
		}
	}
	return names
}

// unknownTool stands for the name of a tool that the agent does not have: the model may have written anything there.
const unknownTool = `"(unknown tool)"`

// ForSender returns what those see of an event who may only send to the agent: no arguments, results and reasoning, and
// no text of an agent whose reply_sink is not allow. ok is false if they see nothing.
func ForSender(e turnkeeper.Event) (_ turnkeeper.Event, ok bool) {
	fields, ok := sendable[e.Type]
	if !ok {
		return e, false
	}
	var data map[string]json.RawMessage
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &data) != nil {
		return e, false
	}
	_, guarded := data["guarded"]
	_, unknown := data["unknown"]
	for name := range data {
		switch {
		case !fields[name], guarded && name == "text":
			delete(data, name)
		case unknown && (name == "tool" || name == "name"):
			data[name] = json.RawMessage(unknownTool)
		}
	}
	if e.Type == turnkeeper.EventBlockDelta && len(data) == 0 {
		return e, false
	}
	if data != nil {
		e.Data, _ = json.Marshal(data) // valid JSON, as it was decoded
	}
	return e, true
}
