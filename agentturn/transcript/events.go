// Package transcript makes the events of a turn, which watchers read while it runs: blocks
// and deltas of the model's answer, calls and their results, the end. It knows no journal:
// its owner writes what is Unwritten.
package transcript

import (
	"bytes"
	"encoding/json"

	"turnkeeper"
)

// What the events of a turn carry as data. Fields that are empty are left out.
// Round and block are fields of the event itself.
type (
	// TurnStartData is the data of turn_start.
	TurnStartData struct {
		Trigger turnkeeper.Trigger   `json:"trigger"`
		Agent   string               `json:"agent"`
		Message turnkeeper.MessageID `json:"message_id"`
		Attempt int                  `json:"attempt"` // of the message, from 1
		Parent  *ParentData          `json:"parent,omitempty"`
	}

	// TurnResumedData is the data of turn_resumed: the turn goes on under
	// another grant, or after its journal was read again.
	TurnResumedData struct {
		Dispatch int `json:"dispatch"`
	}

	// TurnWaitingData is the data of turn_waiting: the turn goes on when one of
	// these detached calls has ended.
	TurnWaitingData struct {
		Calls []string `json:"calls"` // round-R-tool-I
	}

	// RoundStartData is the data of round_start.
	RoundStartData struct {
		Of    int  `json:"of"`              // max_rounds
		Final bool `json:"final,omitempty"` // no tools may be called
	}

	// BlockStartData is the data of block_start.
	BlockStartData struct {
		Kind string `json:"kind"`           // thinking, text or tool_use
		Tool string `json:"tool,omitempty"` // of tool_use
	}

	// BlockDeltaData is the data of block_delta: what the block goes on with.
	BlockDeltaData struct {
		Text string `json:"text"`
	}

	// ToolData is the data of tool_started and tool_result. A tool_result has
	// the number of its block, which is of kind tool_result.
	ToolData struct {
		Call    string               `json:"call"` // round-R-tool-I
		Name    string               `json:"name"`
		State   turnkeeper.CallState `json:"state"`
		Preview string               `json:"preview,omitempty"`
		Millis  int64                `json:"duration_ms,omitempty"`

		SubAgent *SubAgentData `json:"sub_agent,omitempty"` // of spawn_agent
	}

	// SubAgentData says of a call that gave work to an agent where that is done. The
	// turn and its outcome are there with the result.
	SubAgentData struct {
		Agent        string               `json:"agent"`
		Conversation string               `json:"conversation"`
		Message      turnkeeper.MessageID `json:"message_id,omitempty"`
		Turn         turnkeeper.TurnID    `json:"turn_id,omitempty"`
		Outcome      turnkeeper.TurnState `json:"outcome,omitempty"`
	}

	// ParentData is the call that a sub-agent's turn works for.
	ParentData struct {
		Turn turnkeeper.TurnID `json:"turn_id"`
		Call string            `json:"call"`
		Root turnkeeper.TurnID `json:"root_turn_id"` // that the tree began with
	}

	// RoundStopData is the data of round_stop: every call of the round is
	// answered.
	RoundStopData struct {
		FinishReason string           `json:"finish_reason,omitempty"`
		Model        string           `json:"model,omitempty"`
		Calls        int              `json:"calls"`
		Usage        turnkeeper.Usage `json:"usage"`
	}

	// RollbackData is the data of round_rollback: everything since the round's
	// round_start is void, and the round will start again or be given up.
	RollbackData struct {
		Reason string `json:"reason"`
	}

	// NoticeData is the data of notice: what the model is told beside the
	// conversation, or, with a call, how far that is.
	NoticeData struct {
		Text string `json:"text"`
		Call string `json:"call,omitempty"`
	}

	// TurnEndData is the data of turn_complete and turn_error, the last event.
	TurnEndData struct {
		State      turnkeeper.TurnState  `json:"state"`
		StopReason turnkeeper.StopReason `json:"stop_reason"`
		Rounds     int                   `json:"rounds"`
		Calls      int                   `json:"calls"`
		Reply      string                `json:"reply,omitempty"`
		Retry      bool                  `json:"retry,omitempty"` // failed: another turn will try
	}
)

// A Transcript makes the events of one execution of a turn, and keeps them until they are
// written. It belongs to one goroutine.
type Transcript struct {
	turn      turnkeeper.TurnID
	block     int // the next block's number
	unwritten []turnkeeper.Event
	mark      int // how many were unwritten when Mark was called
}

// New makes a Transcript of a turn whose next block has a number.
func New(turn turnkeeper.TurnID, block int) *Transcript {
	return &Transcript{turn: turn, block: max(1, block)}
}

// Event adds an event. data nil: it has none.
func (t *Transcript) Event(kind turnkeeper.EventType, round, block int, data any) {
	t.unwritten = append(t.unwritten, NewEvent(t.turn, kind, round, block, data))
}

// NewEvent makes an event of a turn.
func NewEvent(turn turnkeeper.TurnID, kind turnkeeper.EventType, round, block int, data any) turnkeeper.Event {
	return turnkeeper.Event{TurnID: turn, Type: kind, Round: round, Block: block, Data: encode(data)}
}

// Block takes the next block number.
func (t *Transcript) Block() int {
	n := t.block
	t.block++
	return n
}

// Unwritten returns the events that are not written yet.
func (t *Transcript) Unwritten() []turnkeeper.Event { return t.unwritten }

// Written forgets the events: they are written.
func (t *Transcript) Written() { t.unwritten = nil }

// Mark notes where the events of a start begin, for Rewind.
func (t *Transcript) Mark() { t.mark = len(t.unwritten) }

// Rewind removes what was added since Mark.
func (t *Transcript) Rewind() { t.unwritten = t.unwritten[:t.mark] }

func encode(data any) json.RawMessage {
	if data == nil {
		return nil
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil { // the types above always encode
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
