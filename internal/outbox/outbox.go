// Package outbox holds webhooks and the deliveries of replies to them. It does no I/O.
package outbox

import (
	"time"

	"turnkeeper"
)

// A Webhook is an endpoint that replies are pushed to. Its address and secrets are in the
// settings of the workers that deliver, and nowhere else.
type Webhook struct {
	Name         string
	Origin       string   // scheme, host and port of its address
	Agents       []string // whose replies; nil: of all
	SubAgents    bool     // also those that they write for other agents
	AddedAt      time.Time
	SeenAt       time.Time // when a worker that has it in its settings last said so
	NotBefore    time.Time // the endpoint asked for a pause until then; zero: it did not
	PausedAt     time.Time // zero: it is not paused
	PausedReason string
	SucceededAt  time.Time // the newest delivery, to the second; zero: none
	FailedAt     time.Time // the newest failed attempt; zero: none
	LastError    string    // of the newest failed attempt
}

// DeliveryState is where a delivery stands.
type DeliveryState string

// The states of a delivery.
const (
	DeliveryPending   DeliveryState = "pending"   // it is tried until it is delivered, or its bounds are reached
	DeliveryDelivered DeliveryState = "delivered" // the endpoint answered 2xx
	DeliveryDead      DeliveryState = "dead"      // given up; an operator can put it in again
)

// A Delivery is a reply on its way to a webhook.
type Delivery struct {
	Webhook      string
	ReplyID      turnkeeper.ReplyID
	MessageID    turnkeeper.MessageID
	TurnID       turnkeeper.TurnID
	Agent        string
	Conversation string
	Outcome      turnkeeper.TurnState
	RepliedAt    time.Time

	State       DeliveryState
	Attempts    int                 // since it was put in
	DueAt       time.Time           // of the next attempt; while one is under way, when another worker may try; zero: it is over
	Sending     bool                // an attempt is under way
	WorkerID    turnkeeper.WorkerID // of the newest attempt
	FirstAt     time.Time           // the first attempt since it was put in
	LastAt      time.Time           // the end of the newest attempt
	Status      int                 // HTTP status of the newest answer; 0: there was none
	Error       string              // of the newest attempt; empty: it succeeded, or there was none
	Duration    time.Duration       // of the newest attempt
	Redelivered int                 // how often an operator has put it in again
	CreatedAt   time.Time
}

// A DeliveryClaim is the right to make one attempt at a delivery.
type DeliveryClaim struct {
	Webhook string
	Claim   string
	Reply   turnkeeper.Reply
	Attempt int           // this one, from 1
	Tried   time.Duration // since the first attempt
}

// A DeliveryEnd is what became of an attempt.
type DeliveryEnd struct {
	State     DeliveryState
	Wait      time.Duration // until the next attempt, where State is DeliveryPending
	Rest      time.Duration // for which the whole endpoint is left alone; 0: it is not
	Gone      bool          // the endpoint wants nothing any more: the webhook is paused
	Uncounted bool          // the attempt was broken off by this side
	Status    int           // 0: there was no answer
	Error     string        // empty: it succeeded
	Duration  time.Duration
}
