package views

import (
	"time"

	"turnkeeper"
)

// A Message is an entry of the inbox.
type Message struct {
	ID           turnkeeper.MessageID    `json:"id"`
	State        turnkeeper.MessageState `json:"state"`
	Agent        string                  `json:"agent"`
	Conversation string                  `json:"conversation"`
	Lane         turnkeeper.Lane         `json:"lane"`
	Body         string                  `json:"body"`
	Key          string                  `json:"idempotency_key"`
	Priority     int                     `json:"priority"`
	Trigger      turnkeeper.Trigger      `json:"trigger"`
	Schedule     string                  `json:"schedule"`
	Slot         *time.Time              `json:"slot"`
	Attempts     int                     `json:"attempts"`
	TurnID       *turnkeeper.TurnID      `json:"turn_id"`
	LastError    string                  `json:"last_error"`
	TraceParent  string                  `json:"trace_parent"`
	AcceptedAt   time.Time               `json:"accepted_at"`
	DueAt        time.Time               `json:"due_at"`
	ClosedAt     *time.Time              `json:"closed_at"`
}

// OfMessage shows a message.
func OfMessage(m turnkeeper.Message) Message {
	return Message{
		ID: m.ID, State: m.State, Agent: m.Agent, Conversation: m.Conversation, Lane: m.Lane, Body: m.Body, Key: m.Key,
		Priority: m.Priority, Trigger: m.Trigger, Schedule: m.Schedule, Slot: OrNull(m.Slot), Attempts: m.Attempts,
		TurnID: OrNull(m.TurnID), LastError: m.LastError, TraceParent: m.TraceParent, AcceptedAt: m.AcceptedAt,
		DueAt: m.DueAt, ClosedAt: OrNull(m.ClosedAt),
	}
}

// A Reply is an entry of the outbox.
type Reply struct {
	ID           turnkeeper.ReplyID   `json:"id"`
	MessageID    turnkeeper.MessageID `json:"message_id"`
	TurnID       turnkeeper.TurnID    `json:"turn_id"`
	Agent        string               `json:"agent"`
	Conversation string               `json:"conversation"`
	Outcome      turnkeeper.TurnState `json:"outcome"`
	Body         string               `json:"body"`
	CreatedAt    time.Time            `json:"created_at"`
	ParentTurn   *turnkeeper.TurnID   `json:"parent_turn_id"` // the turn that a sub-agent wrote it for; null: it is no sub-agent's
}

// OfReply shows a reply.
func OfReply(r turnkeeper.Reply) Reply {
	return Reply{
		ID: r.ID, MessageID: r.MessageID, TurnID: r.TurnID, Agent: r.Agent, Conversation: r.Conversation, Outcome: r.Outcome,
		Body: r.Body, CreatedAt: r.CreatedAt, ParentTurn: OrNull(r.ParentTurn),
	}
}
