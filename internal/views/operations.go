package views

import (
	"turnkeeper"
	"turnkeeper/storage/operate"
)

// A Cancelled is the result of a cancellation.
type Cancelled struct {
	TurnID    turnkeeper.TurnID `json:"turn_id"`
	Cancelled bool              `json:"cancelled" doc:"false: requested; the turn's worker will end it"`
}

// OfCancelled returns the view of a cancellation's result.
func OfCancelled(c operate.Ended) Cancelled { return Cancelled{c.Turn, c.Closed} }

// A Finished is the result of a request to finish a turn.
type Finished struct {
	TurnID   turnkeeper.TurnID `json:"turn_id"`
	Finished bool              `json:"finished" doc:"false: requested; the turn ends with its next model call"`
}

// OfFinished returns the view of the result of a request to finish.
func OfFinished(f operate.Ended) Finished { return Finished{f.Turn, f.Closed} }

// A Retried is the result of a retry.
type Retried struct {
	MessageID turnkeeper.MessageID  `json:"message_id" doc:"the message that will be handled"`
	RetryOf   *turnkeeper.MessageID `json:"retry_of" doc:"the retried message; null: message_id is that message itself"`
	DueNow    bool                  `json:"due_now"`
	Repeat    bool                  `json:"repeat" doc:"the message was already retried"`
}

// OfRetried returns the view of the retry of message id.
func OfRetried(id turnkeeper.MessageID, r operate.Retried) Retried {
	v := Retried{MessageID: r.Message, DueNow: r.DueNow, Repeat: r.Repeat}
	if r.Message != id {
		v.RetryOf = &id
	}
	return v
}
