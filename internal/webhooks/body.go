package webhooks

import (
	"bytes"
	"encoding/json"
	"time"

	"turnkeeper"
)

// EventReply is the type of all messages so far.
const EventReply = "reply.created"

type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the reply
	Data      any       `json:"data"`
}

// bodyOf returns the body of a delivery. It depends on the reply only, so it is the same at every attempt.
func bodyOf(r turnkeeper.Reply, view func(turnkeeper.Reply) any) ([]byte, error) {
	r.CreatedAt = r.CreatedAt.UTC()
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(message{EventReply, r.CreatedAt, view(r)})
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
