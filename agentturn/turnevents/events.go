// Package turnevents builds the events of a turn, which clients follow while it runs: blocks
// and deltas of the model's answer, calls and their results, the end. It does not write
// them: its owner writes the Unwritten ones.
package turnevents

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
)

// EventsExpired is the type of the event that a store leaves in place of those that retention has deleted. No turn
// writes it.
const EventsExpired turnkeeper.EventType = "events_expired"

// Data of the events of a turn. Round and block are fields of the event itself.
//
// Who may only send to the agent, and not read, gets the fields that are tagged send alone: see package views.
type (
	// TurnStartData is the data of turn_start.
	TurnStartData struct {
		Trigger turnkeeper.Trigger   `json:"trigger" send:"yes"`
		Agent   string               `json:"agent" send:"yes"`
		Message turnkeeper.MessageID `json:"message_id" send:"yes"`
		Attempt int                  `json:"attempt" send:"yes" doc:"of the message, from 1"`
		Parent  *ParentData          `json:"parent,omitempty" doc:"of a sub-agent's turn"`
	}

	// TurnResumedData is the data of turn_resumed.
	TurnResumedData struct {
		Dispatch int `json:"dispatch" send:"yes" doc:"grants of the turn so far"`
	}

	// TurnWaitingData is the data of turn_waiting.
	TurnWaitingData struct {
		Reasons []waiting.Reason `json:"reasons" send:"yes" doc:"what the turn waits for; values may be added"`
		For     string           `json:"for" send:"yes" doc:"the same in words, behind waits for"`
		Calls   []string         `json:"calls" send:"yes" doc:"calls that run outside the turn, as round-R-tool-I"`
		Asks    []string         `json:"asks,omitempty" send:"yes" doc:"asks that a person must answer, as KIND round-R-tool-I"`
		Models  []string         `json:"models,omitempty" doc:"models that are down, as in the agent's file"`
	}

	// AskData is the data of ask_opened and ask_closed.
	AskData struct {
		Ask    string     `json:"ask" send:"yes" doc:"KIND round-R-tool-I, as in turn_waiting"`
		Kind   asks.Kind  `json:"kind" send:"yes" doc:"kinds may be added"`
		Call   string     `json:"call" send:"yes" doc:"round-R-tool-I; of a budget or a reply, the place of the round"`
		Tool   string     `json:"tool,omitempty" send:"yes" doc:"the tool's name"`
		State  asks.State `json:"state" send:"yes" doc:"open in ask_opened"`
		Reason string     `json:"reason,omitempty" doc:"the reason of the rule, or the text of the question"`
	}

	// RoundStartData is the data of round_start.
	RoundStartData struct {
		Of    int  `json:"of" send:"yes" doc:"max_rounds"`
		Final bool `json:"final,omitempty" send:"yes" doc:"no tools may be called"`
		// Epoch is the reason of the epoch that begins with the round's request.
		Epoch turnkeeper.EpochReason `json:"epoch,omitempty" doc:"a new epoch: why the request does not extend the one before it; reasons may be added"`
	}

	// BlockStartData is the data of block_start.
	BlockStartData struct {
		Kind    string `json:"kind" send:"yes" schema:"enum=thinking|text|tool_use" doc:"of the block; kinds may be added"`
		Tool    string `json:"tool,omitempty" send:"yes" doc:"of tool_use: the tool's name"`
		Unknown bool   `json:"unknown,omitempty" doc:"the agent has no such tool: the model made up its name"`
	}

	// BlockDeltaData is the data of block_delta. It has one of the three texts, according to the kind of the block.
	BlockDeltaData struct {
		Text      string `json:"text,omitempty" send:"yes" doc:"of a text block"`
		Thinking  string `json:"thinking,omitempty" doc:"of a thinking block"`
		Arguments string `json:"arguments,omitempty" doc:"of a tool_use block: JSON"`
		Guarded   bool   `json:"guarded,omitempty" doc:"the agent's reply_sink is not allow: only who may read sees the text before the reply is sent"`
	}

	// ToolData is the data of tool_started and tool_result. A tool_result has
	// the number of its block, which is of kind tool_result.
	ToolData struct {
		Call    string               `json:"call" send:"yes" doc:"round-R-tool-I"`
		Name    string               `json:"name" send:"yes" doc:"the tool's name"`
		Unknown bool                 `json:"unknown,omitempty" doc:"the agent has no such tool: the model made up its name"`
		State   turnkeeper.CallState `json:"state" send:"yes"`
		Preview string               `json:"preview,omitempty" doc:"beginning of the result"`
		Millis  int64                `json:"duration_ms,omitempty" send:"yes"`

		SubAgent *SubAgentData `json:"sub_agent,omitempty" doc:"of spawn_agent"`
	}

	// SubAgentData describes the sub-agent of a call.
	SubAgentData struct {
		Agent        string               `json:"agent"`
		Conversation string               `json:"conversation"`
		Message      turnkeeper.MessageID `json:"message_id,omitempty"`
		Turn         turnkeeper.TurnID    `json:"turn_id,omitempty" doc:"in the event of the result"`
		Outcome      turnkeeper.TurnState `json:"outcome,omitempty" doc:"in the event of the result"`
	}

	// ParentData identifies the call that a sub-agent's turn works for.
	ParentData struct {
		Turn turnkeeper.TurnID `json:"turn_id"`
		Call string            `json:"call" doc:"round-R-tool-I"`
		Root turnkeeper.TurnID `json:"root_turn_id" doc:"of the tree"`
	}

	// RoundStopData is the data of round_stop.
	RoundStopData struct {
		FinishReason string           `json:"finish_reason,omitempty" doc:"the provider's"`
		Model        string           `json:"model,omitempty" doc:"that answered"`
		Calls        int              `json:"calls" send:"yes" doc:"of the round"`
		Usage        turnkeeper.Usage `json:"usage" doc:"of the round"`
	}

	// EventsExpiredData is the data of events_expired.
	EventsExpiredData struct {
		First int64 `json:"first" send:"yes" doc:"number of the first event that was deleted"`
		Last  int64 `json:"last" send:"yes" doc:"number of the last one, and of this event"`
	}

	// RollbackData is the data of round_rollback.
	RollbackData struct {
		Reason string `json:"reason"`
	}

	// NoticeData is the data of notice.
	NoticeData = turnlog.NoticeData

	// TurnEndData is the data of turn_complete and turn_error.
	TurnEndData struct {
		State      turnkeeper.TurnState  `json:"state" send:"yes"`
		StopReason turnkeeper.StopReason `json:"stop_reason" send:"yes"`
		Rounds     int                   `json:"rounds" send:"yes" doc:"of the turn"`
		Calls      int                   `json:"calls" send:"yes" doc:"of the turn"`
		Reply      string                `json:"reply,omitempty" doc:"the text of the reply"`
		Retry      bool                  `json:"retry,omitempty" send:"yes" doc:"true: the attempt failed, all that it streamed is void, and another turn will try again"`
	}
)

// A Builder builds the events of one execution of a turn, and keeps them until they are
// written. It belongs to one goroutine.
type Builder struct {
	turn      turnkeeper.TurnID
	block     int // number of the next block
	unwritten []turnkeeper.Event
	mark      int // len(unwritten) when Mark was called
}

// New returns a Builder of the events of a turn. block is the number of its next block.
func New(turn turnkeeper.TurnID, block int) *Builder {
	return &Builder{turn: turn, block: max(1, block)}
}

// Event adds an event. data may be nil.
func (b *Builder) Event(kind turnkeeper.EventType, round, block int, data any) {
	b.unwritten = append(b.unwritten, NewEvent(b.turn, kind, round, block, data))
}

// NewEvent returns an event of a turn. data may be nil.
func NewEvent(turn turnkeeper.TurnID, kind turnkeeper.EventType, round, block int, data any) turnkeeper.Event {
	return turnkeeper.Event{TurnID: turn, Type: kind, Round: round, Block: block, Data: encode(data)}
}

// Block returns the next block number, and increments it.
func (b *Builder) Block() int {
	n := b.block
	b.block++
	return n
}

// Unwritten returns the events that are not written yet.
func (b *Builder) Unwritten() []turnkeeper.Event { return b.unwritten }

// Due returns a channel that fires after a time, when unwritten events, such as the start of a read, must be shown
// although what follows takes long. It is nil if there are none.
func (b *Builder) Due(after time.Duration) <-chan time.Time {
	if len(b.unwritten) == 0 {
		return nil
	}
	return time.After(after)
}

// Written removes the events, which have been written.
func (b *Builder) Written() { b.unwritten = nil }

// Mark marks the position that Rewind returns to.
func (b *Builder) Mark() { b.mark = len(b.unwritten) }

// Rewind removes the events that were added since Mark.
func (b *Builder) Rewind() { b.unwritten = b.unwritten[:b.mark] }

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

// OfAsk returns the data of ask_opened or ask_closed.
func OfAsk(a asks.Ask) AskData {
	return AskData{Ask: NameOfAsk(a), Kind: a.Kind, Call: a.Call.String(), Tool: a.Tool, State: a.State,
		Reason: a.Reason}
}

// NameOfAsk returns the name of an ask in events.
func NameOfAsk(a asks.Ask) string { return string(a.Kind) + " " + a.Call.String() }

// WaitingFor returns the data of turn_waiting for what a turn waits for.
func WaitingFor(reasons ...waiting.Reason) TurnWaitingData {
	return TurnWaitingData{Reasons: reasons, For: waiting.For(reasons), Calls: []string{}}
}

// Names lists the asks, calls and models that the turn waits for.
func (d TurnWaitingData) Names() string {
	return strings.Join(slices.Concat(d.Asks, d.Calls, d.Models), ", ")
}
