// Package transcript builds the events of a turn, which clients follow while it runs: blocks
// and deltas of the model's answer, calls and their results, the end. It does not write
// them: its owner writes the Unwritten ones.
package transcript

import (
	"bytes"
	"encoding/json"

	"turnkeeper"
)

// Data of the events of a turn. Round and block are fields of the event itself.
type (
	// TurnStartData is the data of turn_start.
	TurnStartData struct {
		Trigger turnkeeper.Trigger   `json:"trigger"`
		Agent   string               `json:"agent"`
		Message turnkeeper.MessageID `json:"message_id"`
		Attempt int                  `json:"attempt"` // of the message, from 1
		Parent  *ParentData          `json:"parent,omitempty"`
	}

	// TurnResumedData is the data of turn_resumed: the turn continues under another
	// grant, or after its journal was loaded again.
	TurnResumedData struct {
		Dispatch int `json:"dispatch"`
	}

	// TurnWaitingData is the data of turn_waiting: the turn waits until one of these
	// detached calls has ended, a person has answered one of these asks, or one of these models
	// is tried again.
	TurnWaitingData struct {
		Calls  []string `json:"calls"`            // round-R-tool-I
		Asks   []string `json:"asks,omitempty"`   // KIND round-R-tool-I
		Models []string `json:"models,omitempty"` // as in the agent's file
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

	// BlockDeltaData is the data of block_delta: the next part of the block.
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

	// SubAgentData describes the sub-agent of a call. Turn and Outcome are set in the
	// event of the result.
	SubAgentData struct {
		Agent        string               `json:"agent"`
		Conversation string               `json:"conversation"`
		Message      turnkeeper.MessageID `json:"message_id,omitempty"`
		Turn         turnkeeper.TurnID    `json:"turn_id,omitempty"`
		Outcome      turnkeeper.TurnState `json:"outcome,omitempty"`
	}

	// ParentData identifies the call that a sub-agent's turn works for.
	ParentData struct {
		Turn turnkeeper.TurnID `json:"turn_id"`
		Call string            `json:"call"`
		Root turnkeeper.TurnID `json:"root_turn_id"` // of the tree
	}

	// RoundStopData is the data of round_stop: every call of the round is
	// answered.
	RoundStopData struct {
		FinishReason string           `json:"finish_reason,omitempty"`
		Model        string           `json:"model,omitempty"`
		Calls        int              `json:"calls"`
		Usage        turnkeeper.Usage `json:"usage"`
	}

	// RollbackData is the data of round_rollback: all events since the round's
	// round_start are void. The round starts again or is given up.
	RollbackData struct {
		Reason string `json:"reason"`
	}

	// NoticeData is the data of notice: a message about the turn or, with a call, the
	// call's progress.
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

// A Transcript builds the events of one execution of a turn, and keeps them until they are
// written. It belongs to one goroutine.
type Transcript struct {
	turn      turnkeeper.TurnID
	block     int // number of the next block
	unwritten []turnkeeper.Event
	mark      int // len(unwritten) when Mark was called
}

// New returns a Transcript of a turn. block is the number of its next block.
func New(turn turnkeeper.TurnID, block int) *Transcript {
	return &Transcript{turn: turn, block: max(1, block)}
}

// Event adds an event. data may be nil.
func (t *Transcript) Event(kind turnkeeper.EventType, round, block int, data any) {
	t.unwritten = append(t.unwritten, NewEvent(t.turn, kind, round, block, data))
}

// NewEvent returns an event of a turn. data may be nil.
func NewEvent(turn turnkeeper.TurnID, kind turnkeeper.EventType, round, block int, data any) turnkeeper.Event {
	return turnkeeper.Event{TurnID: turn, Type: kind, Round: round, Block: block, Data: encode(data)}
}

// Block returns the next block number, and increments it.
func (t *Transcript) Block() int {
	n := t.block
	t.block++
	return n
}

// Unwritten returns the events that are not written yet.
func (t *Transcript) Unwritten() []turnkeeper.Event { return t.unwritten }

// Written removes the events, which have been written.
func (t *Transcript) Written() { t.unwritten = nil }

// Mark marks the position that Rewind returns to.
func (t *Transcript) Mark() { t.mark = len(t.unwritten) }

// Rewind removes the events that were added since Mark.
func (t *Transcript) Rewind() { t.unwritten = t.unwritten[:t.mark] }

func encode(data any) json.RawMessage {
	if data == nil {
		return nil
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil { // the types above can always be encoded
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
