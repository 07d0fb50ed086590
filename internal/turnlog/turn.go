package turnlog

import (
	"time"

	"turnkeeper"
)

// A FailedAttempt is a model call that gave no answer: it was refused, cut off, or what it
// gave could not be used. It is kept for operators: nothing of it is told to a model, or is
// a reply.
type FailedAttempt struct {
	Round     int // that it was made for; the round may have no answer
	Attempt   int // of the round, in one dispatch; 0: a call beside the rounds
	Provider  string
	Model     string
	Class     string // of the error
	Error     string // for operators
	Text      string // what it had streamed: text, and calls begun; bounded
	Reasoning string // likewise
	Latency   time.Duration
	Usage     turnkeeper.Usage // what it took; estimated where the provider did not say
	EndedAt   time.Time
}
