package httpapi

import (
	"errors"
	"net/http"

	"turnkeeper"
	"turnkeeper/internal/views"
)

var deliveryStates = []string{string(turnkeeper.DeliveryPending), string(turnkeeper.DeliveryDelivered), string(turnkeeper.DeliveryDead)}

// listWebhooks counts deliveries of all agents together, and so wants a token for all.
func (a *API) listWebhooks(c *call) error {
	if !c.caller.seesAll() {
		return refusal(http.StatusForbidden, "webhooks are for all agents, and this token is not")
	}
	all, err := a.cfg.Store.Webhooks(c.Context())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, listOf(all, views.OfWebhook, 0))
}

func (a *API) listDeliveries(c *call) error {
	page, err := c.page("cursor", deliveryStates...)
	if err != nil {
		return err
	}
	name := c.PathValue("name")
	if _, err := a.cfg.Store.Webhook(c.Context(), name); errors.Is(err, turnkeeper.ErrNotFound) {
		return refusal(http.StatusNotFound, "there is no webhook %.70q", name)
	} else if err != nil {
		return err
	}
	deliveries, err := a.cfg.Store.Deliveries(c.Context(), name, page)
	if err != nil {
		return err
	}
	next := int64(0)
	if len(deliveries) == page.Limit {
		next = int64(deliveries[len(deliveries)-1].ReplyID)
	}
	return c.answer(http.StatusOK, listOf(deliveries, views.OfDelivery, next))
}
