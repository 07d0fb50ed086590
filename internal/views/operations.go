package views

import (
	"turnkeeper"
	"turnkeeper/storage/operate"
)

// A Cancelled says what came of a cancellation.
type Cancelled struct {
	TurnID    turnkeeper.TurnID `json:"turn_id"`
	Cancelled bool              `json:"cancelled" doc:"false: its worker has been told, and ends it"`
}

// OfCancelled shows what came of a cancellation.
func OfCancelled(c operate.Cancelled) Cancelled { return Cancelled{c.Turn, c.Closed} }

// A Retried says what came of a retry.
type Retried struct {
	MessageID turnkeeper.MessageID  `json:"message_id" doc:"that is handled next"`
	RetryOf   *turnkeeper.MessageID `json:"retry_of" doc:"null: the message is tried again itself"`
	DueNow    bool                  `json:"due_now"`
	Repeat    bool                  `json:"repeat" doc:"it was put into the inbox again before"`
}

// OfRetried shows what came of the retry of a message.
func OfRetried(id turnkeeper.MessageID, r operate.Retried) Retried {
	v := Retried{MessageID: r.Message, DueNow: r.DueNow, Repeat: r.Repeat}
	if r.Message != id {
		v.RetryOf = &id
	}
	return v
}
