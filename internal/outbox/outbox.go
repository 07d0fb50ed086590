// Package outbox holds webhooks and the deliveries of replies and asks to them. It does no I/O.
package outbox

import (
	"time"

	"turnkeeper"
	"turnkeeper/asks"
)

// A Webhook is an endpoint that receives replies. Its address and secrets are only in the settings
// of the workers that deliver.
type Webhook struct {
	Name         string
	Origin       string   // scheme, host and port of its address
	Agents       []string // whose replies it receives; nil: all
	SubAgents    bool     // also their replies as sub-agents
	Asks         bool     // also what they ask
	AddedAt      time.Time
	SeenAt       time.Time // when a worker last reported it in its settings
	NotBefore    time.Time // the endpoint asked for a pause until then; zero: no pause
	PausedAt     time.Time // zero: it is not paused
	PausedReason string
	SucceededAt  time.Time // the newest delivery, to the second; zero: none
	FailedAt     time.Time // the newest failed attempt; zero: none
	LastError    string    // of the newest failed attempt
}

// DeliveryState is the state of a delivery.
type DeliveryState string

// The states of a delivery.
const (
	DeliveryPending   DeliveryState = "pending"   // retried until it is delivered or reaches a limit
	DeliveryDelivered DeliveryState = "delivered" // the endpoint answered 2xx
	DeliveryDead      DeliveryState = "dead"      // given up; an operator can redeliver it
)

// A Delivery is the delivery of a reply, or of an ask, to a webhook.
type Delivery struct {
	ID           int64
	Webhook      string
	ReplyID      turnkeeper.ReplyID // 0: it is of an ask
	AskID        asks.ID            // 0: it is of a reply
	MessageID    turnkeeper.MessageID
	TurnID       turnkeeper.TurnID
	Agent        string
	User         string // whose conversation it is; empty: no user's
	Conversation string
	Outcome      turnkeeper.TurnState // empty: it is of an ask
	WrittenAt    time.Time            // when the reply was written, or the ask opened

	State    DeliveryState
	Attempts int // since it was created or redelivered
	// of the next attempt; during an attempt, when another worker may try; zero: it has ended
	DueAt       time.Time
	Sending     bool                // an attempt is in progress
	WorkerID    turnkeeper.WorkerID // of the newest attempt
	FirstAt     time.Time           // the first attempt since it was created or redelivered
	LastAt      time.Time           // the end of the newest attempt
	Status      int                 // HTTP status of the newest answer; 0: there was none
	Error       string              // of the newest attempt; empty: it succeeded, or there was none
	Duration    time.Duration       // of the newest attempt
	Redelivered int                 // number of redeliveries by operators
	CreatedAt   time.Time
}

// WebhookID returns the header webhook-id, by which a receiver recognises a repeat.
func (d Delivery) WebhookID() string { return webhookID(d.ReplyID, d.AskID) }

func webhookID(reply turnkeeper.ReplyID, ask asks.ID) string {
	if ask != 0 {
		return ask.WebhookID()
	}
	return reply.WebhookID()
}

// An OpenedAsk is an ask with the turn that opened it.
type OpenedAsk struct {
	asks.Ask
	Agent        string
	User         string // whose conversation it is; empty: no user's
	Conversation string
	Message      turnkeeper.MessageID
}

// A DeliveryClaim is the right to make one attempt at a delivery, of a reply or of an ask.
type DeliveryClaim struct {
	ID      int64
	Webhook string
	Claim   string
	Reply   turnkeeper.Reply // without an ID: the delivery is of Ask
	Ask     OpenedAsk
	Attempt int           // this one, from 1
	Tried   time.Duration // since the first attempt
}

// WebhookID returns the header webhook-id, by which a receiver recognises a repeat.
func (c DeliveryClaim) WebhookID() string { return webhookID(c.Reply.ID, c.Ask.ID) }

// A DeliveryEnd is the result of an attempt.
type DeliveryEnd struct {
	State     DeliveryState
	Wait      time.Duration // until the next attempt, if State is DeliveryPending
	Rest      time.Duration // pause of all deliveries to the endpoint; 0: none
	Gone      bool          // the endpoint answered 410: the webhook is paused
	Uncounted bool          // this side aborted the attempt: it does not count
	Status    int           // 0: there was no answer
	Error     string        // empty: it succeeded
	Duration  time.Duration
}
