package httpapi

import (
	"context"
	"errors"
	"net/http"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

var deliveryStates = []string{string(outbox.DeliveryPending), string(outbox.DeliveryDelivered), string(outbox.DeliveryDead)}

// A WebhookStore reads for the routes of webhooks.
type WebhookStore interface {
	Webhooks(ctx context.Context) ([]operate.WebhookView, error)
	Webhook(ctx context.Context, name string) (operate.WebhookView, error)
	Deliveries(ctx context.Context, webhook string, p operate.Page) ([]outbox.Delivery, error)
}

// webhooks serves webhooks and their deliveries.
type webhooks struct{ store WebhookStore }

// list counts deliveries of all agents, so the token must cover all.
func (h webhooks) list(c *request.Call) error {
	if !c.Caller.SeesAll() {
		return request.Refuse(http.StatusForbidden, "webhooks serve all agents: use a token that is not restricted to some")
	}
	all, err := h.store.Webhooks(c.Context())
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, listOf(all, views.OfWebhook, 0))
}

func (h webhooks) deliveries(c *request.Call) error {
	page, err := c.Page("cursor", deliveryStates...)
	if err != nil {
		return err
	}
	name := c.PathValue("name")
	if _, err := h.store.Webhook(c.Context(), name); errors.Is(err, turnkeeper.ErrNotFound) {
		return request.Refuse(http.StatusNotFound, "there is no webhook %.70q", name)
	} else if err != nil {
		return err
	}
	deliveries, err := h.store.Deliveries(c.Context(), name, page)
	if err != nil {
		return err
	}
	next := int64(0)
	if len(deliveries) == page.Limit {
		next = deliveries[len(deliveries)-1].ID
	}
	return c.Answer(http.StatusOK, listOf(deliveries, views.OfDelivery, next))
}
