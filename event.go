package turnkeeper

import (
	"encoding/json"
	"time"
)

// EventType names the kind of an event.
type EventType string

// The events of a turn.
const (
	EventTurnStart     EventType = "turn_start"
	EventRoundStart    EventType = "round_start"
	EventBlockStart    EventType = "block_start"
	EventBlockDelta    EventType = "block_delta"
	EventBlockStop     EventType = "block_stop"
	EventToolStarted   EventType = "tool_started"
	EventToolResult    EventType = "tool_result"
	EventNotice        EventType = "notice"
	EventRoundStop     EventType = "round_stop"
	EventRoundRollback EventType = "round_rollback"
	EventAskOpened     EventType = "ask_opened"
	EventAskClosed     EventType = "ask_closed"
	EventTurnWaiting   EventType = "turn_waiting"
	EventTurnResumed   EventType = "turn_resumed"
	EventTurnComplete  EventType = "turn_complete"
	EventTurnError     EventType = "turn_error"
)

// Terminal reports whether no event follows.
func (t EventType) Terminal() bool { return t == EventTurnComplete || t == EventTurnError }

// An Event is one entry of a turn's numbered, append-only stream.
type Event struct {
	TurnID TurnID
	Seq    int64 // from 1, without gaps; set by the writer of the turn
	Type   EventType
	Round  int // 0: none
	Block  int // from 1, numbered across rounds; 0: none
	Data   json.RawMessage
	At     time.Time
}
