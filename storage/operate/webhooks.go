package operate

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// RegisterWebhook has replies that are written from now on delivered to the webhook. One that is
// there already gets the origin and agents of w.
func (s *WebhookStore) RegisterWebhook(ctx context.Context, w turnkeeper.Webhook) error {
	return pg.Translate(s.db.Q.RegisterWebhook(ctx, w.Name, w.Origin, w.Agents, w.SubAgents))
}

// SeeWebhooks notes that a worker has these webhooks in its settings, and returns those that
// are still there: an operator may have removed one.
func (s *WebhookStore) SeeWebhooks(ctx context.Context, names []string) ([]string, error) {
	there, err := s.db.Q.SeeWebhooks(ctx, names)
	return there, pg.Translate(err)
}

// ClaimDeliveries claims what is due of a webhook, oldest first, for hold: at most limit, and so
// that at most slots are claimed by all workers together. Each claim is an attempt.
func (s *WebhookStore) ClaimDeliveries(ctx context.Context, webhook string, worker turnkeeper.WorkerID, slots, limit int, hold time.Duration) ([]turnkeeper.DeliveryClaim, error) {
	rows, err := s.db.Q.ClaimDeliveries(ctx, dbsqlc.ClaimDeliveriesParams{
		Webhook: webhook, Worker: string(worker), Slots: int32(slots), MaxRows: int32(limit), Hold: hold, //nolint:gosec // settings bound them
	})
	if err != nil {
		return nil, pg.Translate(err)
	}
	replies, err := s.repliesOf(ctx, rows)
	var claims []turnkeeper.DeliveryClaim
	for _, r := range rows {
		reply, there := replies[r.ReplyID]
		if !there {
			continue // it was purged meanwhile
		}
		claims = append(claims, turnkeeper.DeliveryClaim{
			Webhook: webhook, Claim: r.Claim, Attempt: int(r.Attempts), Tried: time.Duration(r.TriedMs) * time.Millisecond, Reply: reply,
		})
	}
	return claims, err
}

// repliesOf are the replies of claims, by their ids. Without them nothing may be sent: a
// reply has the same body at every attempt.
func (s *WebhookStore) repliesOf(ctx context.Context, claimed []dbsqlc.ClaimDeliveriesRow) (map[int64]turnkeeper.Reply, error) {
	replies := map[int64]turnkeeper.Reply{}
	ids := dbrow.Map(claimed, func(r dbsqlc.ClaimDeliveriesRow) int64 { return r.ReplyID })
	if len(ids) == 0 {
		return replies, nil
	}
	err := pg.Patiently(ctx, func() error {
		rows, err := s.db.Q.RepliesByID(ctx, ids)
		for _, r := range rows {
			replies[r.ID] = dbrow.Reply(r)
		}
		return pg.Translate(err)
	})
	return replies, err
}

// EndDelivery notes what became of an attempt. held is false where the claim had run out and
// somebody else has it, or the delivery is gone: then nothing is noted.
func (s *WebhookStore) EndDelivery(ctx context.Context, c turnkeeper.DeliveryClaim, end turnkeeper.DeliveryEnd) (held bool, err error) {
	p := dbsqlc.EndDeliveryParams{
		State: string(end.State), Wait: end.Wait, Rest: end.Rest, Gone: end.Gone, ReplyID: int64(c.Reply.ID), Webhook: c.Webhook, Claim: c.Claim,
		Error: dbrow.OrNull(s.db.Clean(end.Error)),
	}
	p.DurationMs, p.Uncounted = max(end.Duration.Milliseconds(), 0), end.Uncounted
	if end.Status != 0 {
		status := int32(end.Status) //nolint:gosec // three digits
		p.Status = &status
	}
	n, err := s.db.Q.EndDelivery(ctx, p)
	return n > 0, pg.Translate(err)
}

// NextDelivery is how long nothing of a webhook will be due. ok: something is pending.
func (s *WebhookStore) NextDelivery(ctx context.Context, webhook string) (wait time.Duration, ok bool, err error) {
	seconds, err := s.db.Q.NextDelivery(ctx, webhook)
	if err = pg.Translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return 0, false, nil
	}
	return time.Duration(seconds * float64(time.Second)), err == nil, err
}

// A WebhookView is a webhook and what is under way to it. Counts go to 100,000.
type WebhookView struct {
	turnkeeper.Webhook
	Pending int           // Sending included
	Sending int           // attempts under way
	Dead    int           // given up
	Oldest  time.Duration // age of the oldest that is pending; 0: none is
	Now     time.Time     // by the database's clock
}

// unseen is the silence of all workers after which nobody delivers for a webhook: they speak of
// it each ten seconds.
const unseen = 35 * time.Second

// Served says that a worker delivers for the webhook.
func (v WebhookView) Served() bool { return v.Now.Sub(v.SeenAt) < unseen }

// Webhooks lists webhooks by name.
func (s *WebhookStore) Webhooks(ctx context.Context) ([]WebhookView, error) {
	rows, err := s.db.Q.ListWebhooks(ctx, "")
	return dbrow.Map(rows, webhookOf), pg.Translate(err)
}

// Webhook is one webhook, or ErrNotFound.
func (s *WebhookStore) Webhook(ctx context.Context, name string) (WebhookView, error) {
	rows, err := s.db.Q.ListWebhooks(ctx, name)
	if err == nil && (name == "" || len(rows) == 0) {
		return WebhookView{}, turnkeeper.ErrNotFound
	}
	if err != nil {
		return WebhookView{}, pg.Translate(err)
	}
	return webhookOf(rows[0]), nil
}

// Deliveries lists the deliveries of a webhook, of the newest reply first.
func (s *WebhookStore) Deliveries(ctx context.Context, webhook string, p Page) ([]turnkeeper.Delivery, error) {
	rows, err := s.db.Q.ListDeliveries(ctx, dbsqlc.ListDeliveriesParams{
		Webhook: webhook, State: p.State, Agent: p.Agent, Before: p.Cursor, MaxRows: p.limit(),
	})
	return dbrow.Map(rows, deliveryOf), pg.Translate(err)
}

// Redeliver has a reply delivered to a webhook, once more or, where it was written before there
// was the webhook, at all. It fails with ErrNotFound where there is no such reply or webhook;
// done is false while an attempt is under way.
func (s *WebhookStore) Redeliver(ctx context.Context, webhook string, id turnkeeper.ReplyID) (done bool, err error) {
	if _, err := s.Webhook(ctx, webhook); err != nil {
		return false, err
	}
	if _, err := s.db.Q.ReplyExists(ctx, int64(id)); err != nil {
		return false, pg.Translate(err)
	}
	n, err := s.db.Q.Redeliver(ctx, int64(id), webhook)
	return n > 0, pg.Translate(err)
}

// RedeliverDead has all deliveries of a webhook that were given up tried again.
func (s *WebhookStore) RedeliverDead(ctx context.Context, webhook string) (int, error) {
	if _, err := s.Webhook(ctx, webhook); err != nil {
		return 0, err
	}
	n, err := s.db.Q.RedeliverDead(ctx, webhook)
	return int(n), pg.Translate(err)
}

// PauseWebhook stops deliveries to a webhook; its replies are kept for it. It fails with
// ErrNotFound.
func (s *WebhookStore) PauseWebhook(ctx context.Context, name, reason string) error {
	return found(s.db.Q.PauseWebhook(ctx, reason, name))
}

// ResumeWebhook goes on with them, and what was tried before begins afresh.
func (s *WebhookStore) ResumeWebhook(ctx context.Context, name string) error {
	return found(s.db.Q.ResumeWebhook(ctx, name))
}

// ErrWebhookServed refuses to remove a webhook that a worker has in its settings.
var ErrWebhookServed = errors.New("a worker delivers for the webhook")

// deliveryBatch bounds the rows that one statement removes.
const deliveryBatch = 1000

// RemoveWebhook forgets a webhook and its deliveries. It fails with ErrNotFound, and with
// ErrWebhookServed.
func (s *WebhookStore) RemoveWebhook(ctx context.Context, name string) error {
	if _, err := s.Webhook(ctx, name); err != nil {
		return err
	}
	n, err := s.db.Q.RemoveWebhook(ctx, name, unseen)
	if err == nil && n == 0 {
		return ErrWebhookServed
	}
	if err != nil {
		return pg.Translate(err)
	}
	return s.removeDeliveries(ctx)
}

func (s *WebhookStore) removeDeliveries(ctx context.Context) error {
	for {
		n, err := s.db.Q.RemoveDeliveries(ctx, deliveryBatch)
		if err != nil || n < deliveryBatch {
			return pg.Translate(err)
		}
	}
}

// longestWait is above every wait for an attempt.
const longestWait = 9 * time.Hour

// SweepDeliveries removes deliveries whose webhook was removed while their turn ended, and
// mends waits that a clock set back has made endless.
func (s *WebhookStore) SweepDeliveries(ctx context.Context) error {
	if _, err := s.db.Q.MendDeliveries(ctx, longestWait); err != nil {
		return pg.Translate(err)
	}
	return s.removeDeliveries(ctx)
}

func webhookOf(r dbsqlc.ListWebhooksRow) WebhookView {
	w := r.TurnkeeperWebhook
	return WebhookView{
		Webhook: turnkeeper.Webhook{
			Name: w.Name, Origin: w.Origin, Agents: w.Agents, SubAgents: w.SubAgents, AddedAt: w.AddedAt, SeenAt: w.SeenAt, NotBefore: dbrow.OrZero(w.NotBefore),
			PausedAt: dbrow.OrZero(w.PausedAt), PausedReason: dbrow.OrZero(w.PausedReason), SucceededAt: dbrow.OrZero(w.SucceededAt), FailedAt: dbrow.OrZero(w.FailedAt),
			LastError: dbrow.OrZero(w.LastError),
		},
		Pending: int(r.Pending), Sending: int(r.Sending), Dead: int(r.Dead), Oldest: time.Duration(r.OldestSeconds * float64(time.Second)), Now: r.Now,
	}
}

func deliveryOf(r dbsqlc.ListDeliveriesRow) turnkeeper.Delivery {
	return turnkeeper.Delivery{
		Webhook: r.Webhook, ReplyID: turnkeeper.ReplyID(r.ReplyID), MessageID: turnkeeper.MessageID(r.MessageID), TurnID: turnkeeper.TurnID(r.TurnID),
		Agent: r.Agent, Conversation: r.Conversation, Outcome: turnkeeper.TurnState(r.Outcome), RepliedAt: r.RepliedAt,
		State: turnkeeper.DeliveryState(r.State), Attempts: int(r.Attempts), DueAt: dbrow.OrZero(r.DueAt), Sending: r.Sending,
		WorkerID: turnkeeper.WorkerID(dbrow.OrZero(r.WorkerID)), FirstAt: dbrow.OrZero(r.FirstAt), LastAt: dbrow.OrZero(r.LastAt), Status: int(dbrow.OrZero(r.Status)),
		Error: dbrow.OrZero(r.Error), Duration: time.Duration(dbrow.OrZero(r.DurationMs)) * time.Millisecond, Redelivered: int(r.Redelivered), CreatedAt: r.CreatedAt,
	}
}
