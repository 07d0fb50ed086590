package webhooks

import (
	"bytes"
	"encoding/json"
	"time"

	"turnkeeper/internal/outbox"
)

// The types of messages.
const (
	EventReply = "reply.created"
	EventAsk   = "ask.opened"
)

type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // when the reply was written, or the ask opened
	Data      any       `json:"data"`
}

// bodyOf returns the body of a delivery. It depends on the reply, or on how the ask was opened, only, so it is the same
// at every attempt.
func (d *Deliverer) bodyOf(c outbox.DeliveryClaim) ([]byte, error) {
	var m message
	if c.Ask.ID != 0 {
		c.Ask.OpenedAt, c.Ask.ExpiresAt = c.Ask.OpenedAt.UTC(), c.Ask.ExpiresAt.UTC()
		m = message{EventAsk, c.Ask.OpenedAt, d.ViewAsk(c.Ask)}
	} else {
		c.Reply.CreatedAt = c.Reply.CreatedAt.UTC()
		m = message{EventReply, c.Reply.CreatedAt, d.View(c.Reply)}
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(m)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
