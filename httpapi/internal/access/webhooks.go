package access

import (
	"context"
	"errors"
	"net/http"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/operate"
)

// A WebhookStore reads webhooks; *operate.Store implements it.
type WebhookStore interface {
	Webhook(ctx context.Context, name string) (operate.WebhookView, error)
	Deliveries(ctx context.Context, webhook string, p operate.Page) ([]outbox.Delivery, error)
}

// Webhooks lists webhooks. It counts deliveries of all agents, so the token must cover all.
func (a Access) Webhooks(c *request.Call) ([]operate.WebhookView, error) {
	if !c.Caller.SeesAll() {
		return nil, request.Refuse(http.StatusForbidden,
			"webhooks serve all agents: use a token that is not restricted to some")
	}
	return a.store.Webhooks(c.Context())
}

// Deliveries lists the deliveries to the webhook whose name is in the path, newest first, and the cursor of the next
// page, or 0. Of the webhook itself, a caller who does not see all agents gets nothing but its name.
func (a Access) Deliveries(c *request.Call, p operate.Page) (w operate.WebhookView, found []outbox.Delivery,
	next int64, err error) {
	name := c.PathValue("name")
	w, err = a.store.Webhook(c.Context(), name)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return w, nil, 0, request.Refuse(http.StatusNotFound, "there is no webhook %.70q", name)
	}
	if err != nil {
		return w, nil, 0, err
	}
	if !c.Caller.SeesAll() {
		w = operate.WebhookView{Webhook: outbox.Webhook{Name: name}}
	}
	found, err = a.store.Deliveries(c.Context(), name, p)
	if len(found) == p.Limit {
		next = found[len(found)-1].ID
	}
	return w, found, next, err
}
