package turnlog

import (
	"time"

	"turnkeeper"
)

// A FailedAttempt is a model call without an answer: it was refused, cut off, or its answer was
// unusable. It is stored for operators; no model sees it, and it is never a reply.
type FailedAttempt struct {
	Round     int // its round, which may have no answer
	Attempt   int // number of the attempt in its round and dispatch; 0: a call outside the rounds
	Provider  string
	Model     string
	Class     string // of the error
	Error     string // for operators
	Text      string // streamed text and calls so far; bounded
	Reasoning string // streamed reasoning so far; bounded
	Latency   time.Duration
	Usage     turnkeeper.Usage // estimated if the provider did not report it
	EndedAt   time.Time
}
