package operate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// RegisterWebhook stores a webhook, so that replies written from now on are delivered to it. An
// existing webhook gets the other settings of w.
func (s *WebhookStore) RegisterWebhook(ctx context.Context, w outbox.Webhook) error {
	return pg.Translate(s.db.Q.RegisterWebhook(ctx, dbsqlc.RegisterWebhookParams{
		Name: w.Name, Origin: w.Origin, Agents: w.Agents, SubAgents: w.SubAgents, Asks: w.Asks,
	}))
}

// SeeWebhooks records that a worker has these webhooks in its settings, and returns those that
// exist: an operator may have removed one.
func (s *WebhookStore) SeeWebhooks(ctx context.Context, names []string) ([]string, error) {
	there, err := s.db.Q.SeeWebhooks(ctx, names)
	return there, pg.Translate(err)
}

// ClaimDeliveries claims at most limit due deliveries of a webhook, oldest first, for the time
// hold. All workers together claim at most slots at a time. Each claim counts as an attempt.
func (s *WebhookStore) ClaimDeliveries(ctx context.Context, webhook string, worker turnkeeper.WorkerID, slots,
	limit int, hold time.Duration) ([]outbox.DeliveryClaim, error) {
	rows, err := s.db.Q.ClaimDeliveries(ctx, dbsqlc.ClaimDeliveriesParams{
		Webhook: webhook, Worker: string(worker), Hold: hold,
		Slots:   int32(slots), //nolint:gosec // settings bound them
		MaxRows: int32(limit), //nolint:gosec // settings bound them
	})
	if err != nil {
		return nil, pg.Translate(err)
	}
	replies, err := s.repliesOf(ctx, rows)
	if err != nil {
		return nil, err
	}
	opened, err := s.asksOf(ctx, rows)
	if err != nil {
		return nil, err
	}
	var claims []outbox.DeliveryClaim
	for _, r := range rows {
		reply, ask := replies.found[r.ReplyID], opened.found[r.AskID]
		if failed := cmp.Or(replies.failed[r.ReplyID], opened.failed[r.AskID]); failed != nil {
			if err := s.db.PutAside(ctx, s.db.Q, string(granting.AsideDelivery), strconv.FormatInt(r.ID, 10),
				failed); err != nil {
				return claims, err
			}
			continue
		}
		if reply.ID == 0 && ask.ID == 0 {
			continue // just purged
		}
		claims = append(claims, outbox.DeliveryClaim{
			ID: r.ID, Webhook: webhook, Claim: r.Claim, Attempt: int(r.Attempts),
			Tried: time.Duration(r.TriedMs) * time.Millisecond, Reply: reply, Ask: ask,
		})
	}
	return claims, nil
}

// contents are what deliveries send, by id, and the errors of what cannot be read.
type contents[T any] struct {
	found  map[int64]T
	failed map[int64]error
}

// asksOf is repliesOf for asks.
func (s *WebhookStore) asksOf(ctx context.Context,
	claimed []dbsqlc.ClaimDeliveriesRow) (opened contents[outbox.OpenedAsk], err error) {
	opened.found = map[int64]outbox.OpenedAsk{}
	ids := idsOf(claimed, func(r dbsqlc.ClaimDeliveriesRow) int64 { return r.AskID })
	if len(ids) == 0 {
		return opened, nil
	}
	err = s.db.Patiently(ctx, func() (err error) {
		var rows []dbsqlc.AsksByIDRow
		rows, opened.failed, err = pg.Apart(ids, func(ids []int64) ([]dbsqlc.AsksByIDRow, error) {
			return s.db.Q.AsksByID(ctx, ids)
		})
		for _, r := range rows {
			a := askOf(dbsqlc.AskByIDRow(r))
			opened.found[int64(a.ID)] = outbox.OpenedAsk{Ask: a.Ask, Agent: a.Agent, User: a.User,
				Conversation: a.Conversation, Message: a.Message}
		}
		return err
	})
	return opened, err
}

// idsOf returns the ids that are not 0.
func idsOf(claimed []dbsqlc.ClaimDeliveriesRow, id func(dbsqlc.ClaimDeliveriesRow) int64) []int64 {
	return slices.DeleteFunc(dbrow.Map(claimed, id), func(id int64) bool { return id == 0 })
}

// repliesOf reads the replies of claims, by id. If that fails nothing may be sent, because every
// attempt must send the same body.
func (s *WebhookStore) repliesOf(ctx context.Context,
	claimed []dbsqlc.ClaimDeliveriesRow) (replies contents[turnkeeper.Reply], err error) {
	replies.found = map[int64]turnkeeper.Reply{}
	ids := idsOf(claimed, func(r dbsqlc.ClaimDeliveriesRow) int64 { return r.ReplyID })
	if len(ids) == 0 {
		return replies, nil
	}
	err = s.db.Patiently(ctx, func() (err error) {
		var rows []dbsqlc.TurnkeeperReply
		rows, replies.failed, err = pg.Apart(ids, func(ids []int64) ([]dbsqlc.TurnkeeperReply, error) {
			return s.db.Q.RepliesByID(ctx, ids)
		})
		for _, r := range rows {
			replies.found[r.ID] = dbrow.Reply(r)
		}
		return err
	})
	return replies, err
}

// EndDelivery records the result of an attempt. held is false, and nothing is recorded, if the
// claim expired and another worker has claimed the delivery, or if the delivery was deleted.
func (s *WebhookStore) EndDelivery(ctx context.Context, c outbox.DeliveryClaim,
	end outbox.DeliveryEnd) (held bool, err error) {
	p := dbsqlc.EndDeliveryParams{
		State: string(end.State), Wait: end.Wait, Rest: end.Rest, Gone: end.Gone, ID: c.ID, Webhook: c.Webhook,
		Claim: c.Claim,
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

// NextDelivery returns the time until a delivery of the webhook is due. ok reports whether any is
// pending.
func (s *WebhookStore) NextDelivery(ctx context.Context, webhook string) (wait time.Duration, ok bool, err error) {
	seconds, err := s.db.Q.NextDelivery(ctx, webhook)
	if err = pg.Translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return 0, false, nil
	}
	return time.Duration(seconds * float64(time.Second)), err == nil, err
}

// A WebhookView is a webhook with the counts of its deliveries, each up to 100,000.
type WebhookView struct {
	outbox.Webhook
	Pending int           // including Sending
	Sending int           // attempts in progress
	Dead    int           // given up
	Oldest  time.Duration // age of the oldest pending delivery; 0: none
	Now     time.Time     // by the database's clock
}

// unseen is the time after which a webhook that no worker has reported counts as not served.
// Workers report their webhooks every ten seconds.
const unseen = 35 * time.Second

// Served reports whether a worker delivers to the webhook.
func (v WebhookView) Served() bool { return v.Now.Sub(v.SeenAt) < unseen }

// A WebhookState says whether a webhook receives what is due.
type WebhookState string

// The states of a webhook.
const (
	WebhookPaused   WebhookState = "paused"        // by an operator
	WebhookUnserved WebhookState = "no_worker"     // no worker has it in its settings
	WebhookResting  WebhookState = "asked_to_wait" // its endpoint asked for a pause
	WebhookFailing  WebhookState = "failing"       // its newest attempt failed
	WebhookActive   WebhookState = "active"
)

// WebhookStates lists the states of a webhook.
var WebhookStates = []WebhookState{WebhookPaused, WebhookUnserved, WebhookResting, WebhookFailing, WebhookActive}

// State returns the state of the webhook.
func (v WebhookView) State() WebhookState {
	switch {
	case !v.PausedAt.IsZero():
		return WebhookPaused
	case !v.Served():
		return WebhookUnserved
	case v.NotBefore.After(v.Now):
		return WebhookResting
	case v.FailedAt.After(v.SucceededAt):
		return WebhookFailing
	default:
		return WebhookActive
	}
}

// Webhooks lists webhooks by name.
func (s *WebhookStore) Webhooks(ctx context.Context) ([]WebhookView, error) {
	rows, err := s.db.Q.ListWebhooks(ctx, "")
	return dbrow.Map(rows, webhookOf), pg.Translate(err)
}

// Webhook reads one webhook, or fails with ErrNotFound.
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

// Deliveries lists the deliveries of a webhook, newest first. The cursor is the id of a delivery.
func (s *WebhookStore) Deliveries(ctx context.Context, webhook string, p Page) ([]outbox.Delivery, error) {
	rows, err := s.db.Q.ListDeliveries(ctx, dbsqlc.ListDeliveriesParams{
		Webhook: webhook, State: p.State, Agent: p.Agent, UserName: p.User, Before: p.Cursor, MaxRows: p.limit(),
	})
	return dbrow.Map(rows, deliveryOf), pg.Translate(err)
}

// Redeliver makes a reply due for delivery to a webhook, again or, if the webhook is newer than the
// reply, for the first time. It fails with ErrNotFound if there is no such reply or webhook. done
// is false if an attempt is in progress.
func (s *WebhookStore) Redeliver(ctx context.Context, webhook string, id turnkeeper.ReplyID) (done bool, err error) {
	if _, err := s.Webhook(ctx, webhook); err != nil {
		return false, err
	}
	if _, err := s.db.Q.ReplyExists(ctx, int64(id)); err != nil {
		return false, pg.Translate(err)
	}
	n, err := s.db.Q.Redeliver(ctx, int64(id), webhook)
	return n > 0, s.ringIfDue(ctx, n, err)
}

// RedeliverDead makes all deliveries of a webhook that were given up due again.
func (s *WebhookStore) RedeliverDead(ctx context.Context, webhook string) (int, error) {
	if _, err := s.Webhook(ctx, webhook); err != nil {
		return 0, err
	}
	n, err := s.db.Q.RedeliverDead(ctx, webhook)
	return int(n), s.ringIfDue(ctx, n, err)
}

// ringIfDue wakes those who deliver, unless no delivery is due or the query failed.
func (s *WebhookStore) ringIfDue(ctx context.Context, deliveries int64, err error) error {
	if err == nil && deliveries > 0 {
		err = s.db.Q.RingTurns(ctx)
	}
	return pg.Translate(err)
}

// PauseWebhook pauses deliveries to a webhook; they stay pending. It fails with ErrNotFound for an
// unknown webhook.
func (s *WebhookStore) PauseWebhook(ctx context.Context, name, reason string) error {
	return found(s.db.Q.PauseWebhook(ctx, reason, name))
}

// ResumeWebhook resumes deliveries. Pending ones start again with their first attempt.
func (s *WebhookStore) ResumeWebhook(ctx context.Context, name string) error {
	if err := found(s.db.Q.ResumeWebhook(ctx, name)); err != nil {
		return err
	}
	return pg.Translate(s.db.Q.RingTurns(ctx))
}

// ErrWebhookServed means that a worker still has the webhook in its settings.
var ErrWebhookServed = errors.New("a worker still delivers to the webhook")

// deliveryBatch is the maximum number of rows that one statement deletes.
const deliveryBatch = 1000

// RemoveWebhook deletes a webhook and its deliveries. It fails with ErrNotFound for an unknown
// webhook, and with ErrWebhookServed while a worker has it in its settings.
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

// longestWait is longer than every pause before an attempt.
const longestWait = 9 * time.Hour

// SweepDeliveries deletes deliveries whose webhook was removed while their turn ended, and
// shortens pauses that became too long because the clock was set back.
func (s *WebhookStore) SweepDeliveries(ctx context.Context) error {
	n, err := s.db.Q.MendDeliveries(ctx, longestWait)
	if err := s.ringIfDue(ctx, n, err); err != nil {
		return err
	}
	return s.removeDeliveries(ctx)
}

func webhookOf(r dbsqlc.ListWebhooksRow) WebhookView {
	w := r.TurnkeeperWebhook
	return WebhookView{
		Webhook: outbox.Webhook{
			Name: w.Name, Origin: w.Origin, Agents: w.Agents, SubAgents: w.SubAgents, Asks: w.Asks, AddedAt: w.AddedAt,
			SeenAt: w.SeenAt, NotBefore: dbrow.OrZero(w.NotBefore),
			PausedAt: dbrow.OrZero(w.PausedAt), PausedReason: dbrow.OrZero(w.PausedReason),
			SucceededAt: dbrow.OrZero(w.SucceededAt), FailedAt: dbrow.OrZero(w.FailedAt),
			LastError: dbrow.OrZero(w.LastError),
		},
		Pending: int(r.Pending), Sending: int(r.Sending), Dead: int(r.Dead),
		Oldest: time.Duration(r.OldestSeconds * float64(time.Second)), Now: r.Now,
	}
}

func deliveryOf(r dbsqlc.ListDeliveriesRow) outbox.Delivery {
	return outbox.Delivery{
		ID: r.ID, Webhook: r.Webhook, ReplyID: turnkeeper.ReplyID(dbrow.OrZero(r.ReplyID)),
		AskID: asks.ID(dbrow.OrZero(r.AskID)), MessageID: turnkeeper.MessageID(r.MessageID),
		TurnID: turnkeeper.TurnID(r.TurnID),
		Agent:  r.Agent, User: r.UserName, Conversation: r.Conversation, Outcome: turnkeeper.TurnState(r.Outcome),
		WrittenAt: r.WrittenAt,
		State:     outbox.DeliveryState(r.State), Attempts: int(r.Attempts), DueAt: dbrow.OrZero(r.DueAt),
		Sending:  r.Sending,
		WorkerID: turnkeeper.WorkerID(dbrow.OrZero(r.WorkerID)), FirstAt: dbrow.OrZero(r.FirstAt),
		LastAt: dbrow.OrZero(r.LastAt), Status: int(dbrow.OrZero(r.Status)),
		Error: dbrow.OrZero(r.Error), Duration: time.Duration(dbrow.OrZero(r.DurationMs)) * time.Millisecond,
		Redelivered: int(r.Redelivered), CreatedAt: r.CreatedAt,
	}
}
