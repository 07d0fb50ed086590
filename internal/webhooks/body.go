package webhooks

import (
	"bytes"
	"encoding/json"
	"time"

	"turnkeeper"
)

// EventReply is the type of every message there is so far.
const EventReply = "reply.created"

type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the reply
	Data      reply     `json:"data"`
}

// A reply has the names and meanings of "turnctl outbox -o json".
type reply struct {
	ID           turnkeeper.ReplyID   `json:"id"`
	MessageID    turnkeeper.MessageID `json:"message_id"`
	TurnID       turnkeeper.TurnID    `json:"turn_id"`
	Agent        string               `json:"agent"`
	Conversation string               `json:"conversation"`
	Outcome      turnkeeper.TurnState `json:"outcome"`
	Body         string               `json:"body"`
	CreatedAt    time.Time            `json:"created_at"`
}

// bodyOf is the same at every attempt, whoever makes it: of the reply alone.
func bodyOf(r turnkeeper.Reply) ([]byte, error) {
	r.CreatedAt = r.CreatedAt.UTC()
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(message{EventReply, r.CreatedAt, reply(r)})
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
