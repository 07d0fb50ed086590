package views

import (
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/operate"
)

// A Webhook is an endpoint that replies, and asks, are pushed to. Counts stop at 100,000.
type Webhook struct {
	Name         string               `json:"name"`
	State        operate.WebhookState `json:"state"`
	Origin       string               `json:"origin" doc:"scheme, host and port of its address"`
	Agents       []string             `json:"agents" schema:"nullable" doc:"null: all agents"`
	SubAgents    bool                 `json:"sub_agents" doc:"also replies of sub-agents to other agents"`
	Asks         bool                 `json:"asks" doc:"also opened asks"`
	Served       bool                 `json:"served" doc:"a worker delivers to this webhook"`
	SeenAt       time.Time            `json:"seen_at"`
	AddedAt      time.Time            `json:"added_at"`
	PausedAt     *time.Time           `json:"paused_at"`
	PausedReason string               `json:"paused_reason"`
	NotBefore    *time.Time           `json:"not_before" doc:"the endpoint asked for a pause until this time"`
	Pending      int                  `json:"pending" schema:"format=int64" doc:"includes sending"`
	Sending      int                  `json:"sending" schema:"format=int64"`
	Dead         int                  `json:"dead" schema:"format=int64"`
	OldestMs     int64                `json:"oldest_pending_ms" doc:"age of the oldest pending delivery; 0: none"`
	SucceededAt  *time.Time           `json:"last_success_at"`
	FailedAt     *time.Time           `json:"last_failure_at"`
	LastError    string               `json:"last_error"`
}

// OfWebhook returns the view of a webhook.
func OfWebhook(v operate.WebhookView) Webhook {
	return Webhook{
		Name: v.Name, State: v.State(), Origin: v.Origin, Agents: v.Agents, SubAgents: v.SubAgents, Asks: v.Asks,
		Served: v.Served(), SeenAt: v.SeenAt, AddedAt: v.AddedAt, PausedAt: OrNull(v.PausedAt),
		PausedReason: v.PausedReason, NotBefore: OrNull(v.NotBefore), Pending: v.Pending, Sending: v.Sending,
		Dead: v.Dead, OldestMs: Millis(v.Oldest),
		SucceededAt: OrNull(v.SucceededAt), FailedAt: OrNull(v.FailedAt), LastError: v.LastError,
	}
}

// A Delivery is the delivery of a reply, or of an ask, to a webhook.
type Delivery struct {
	ID           int64                 `json:"id"`
	Webhook      string                `json:"webhook"`
	WebhookID    string                `json:"webhook_id" doc:"the header webhook-id, by which a receiver recognises a repeat"`
	ReplyID      *turnkeeper.ReplyID   `json:"reply_id" doc:"null: it is of an ask"`
	AskID        *asks.ID              `json:"ask_id" doc:"null: it is of a reply"`
	MessageID    turnkeeper.MessageID  `json:"message_id"`
	TurnID       turnkeeper.TurnID     `json:"turn_id"`
	Agent        string                `json:"agent"`
	User         string                `json:"user" doc:"whose conversation it is; empty: no user's"`
	Conversation string                `json:"conversation"`
	Outcome      *turnkeeper.TurnState `json:"outcome" schema:"ref=TurnOutcome" doc:"null: it is of an ask"`
	WrittenAt    time.Time             `json:"written_at" doc:"when the reply was written, or the ask opened"`
	State        outbox.DeliveryState  `json:"state"`
	Sending      bool                  `json:"sending"`
	Attempts     int                   `json:"attempts"`
	DueAt        *time.Time            `json:"due_at" doc:"time of the next attempt; null: delivered or dead"`
	WorkerID     turnkeeper.WorkerID   `json:"worker_id"`
	FirstAt      *time.Time            `json:"first_attempt_at"`
	LastAt       *time.Time            `json:"last_attempt_at"`
	Status       *int                  `json:"status" doc:"HTTP status; null: no answer"`
	Error        string                `json:"error"`
	DurationMs   *int64                `json:"duration_ms"`
	Redelivered  int                   `json:"redelivered" schema:"format=int64"`
	CreatedAt    time.Time             `json:"created_at"`
}

// OfDelivery returns the view of a delivery.
func OfDelivery(d outbox.Delivery) Delivery {
	v := Delivery{
		Webhook: d.Webhook, WebhookID: d.WebhookID(), ID: d.ID, ReplyID: OrNull(d.ReplyID), AskID: OrNull(d.AskID),
		MessageID: d.MessageID, TurnID: d.TurnID, Agent: d.Agent,
		User: d.User, Conversation: d.Conversation, Outcome: OrNull(d.Outcome), WrittenAt: d.WrittenAt, State: d.State,
		Sending: d.Sending, Attempts: d.Attempts,
		DueAt: OrNull(d.DueAt), WorkerID: d.WorkerID, FirstAt: OrNull(d.FirstAt), LastAt: OrNull(d.LastAt),
		Status: OrNull(d.Status), Error: d.Error,
		Redelivered: d.Redelivered, CreatedAt: d.CreatedAt,
	}
	if !d.LastAt.IsZero() {
		ms := Millis(d.Duration)
		v.DurationMs = &ms
	}
	return v
}
