package httpapi

import (
	"net/http"

	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/views"
)

// webhooks serves webhooks and their deliveries.
type webhooks struct{ access access.Access }

func (h webhooks) list(c *request.Call) error {
	all, err := h.access.Webhooks(c)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, listOf(all, views.OfWebhook, 0))
}

func (h webhooks) deliveries(c *request.Call) error {
	page, err := c.Page("cursor", request.DeliveryStates...)
	if err != nil {
		return err
	}
	_, deliveries, next, err := h.access.Deliveries(c, page)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, listOf(deliveries, views.OfDelivery, next))
}
