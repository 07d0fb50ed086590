package page

import (
	"net/http"

	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// Webhooks is a list of webhooks.
type Webhooks struct{ Webhooks []views.Webhook }

func (Webhooks) file() string    { return "webhooks" }
func (Webhooks) title() string   { return "Webhooks" }
func (Webhooks) section() string { return webhooksSection }

// Webhook is one webhook with deliveries, newest first.
type Webhook struct {
	Listing
	Hook       views.Webhook
	Deliveries []views.Delivery
}

func (Webhook) file() string    { return "webhook" }
func (p Webhook) title() string { return "Webhook " + p.Hook.Name }
func (Webhook) section() string { return webhooksSection }

// Standing returns the state of a delivery: its own, or "sending" while an attempt is made.
func (Webhook) Standing(d views.Delivery) string {
	if d.Sending {
		return "sending"
	}
	return string(d.State)
}

// Doctor shows what doctor finds in the database.
type Doctor struct {
	diagnosis.Report
	Some bool // only what is about some agents
}

func (Doctor) file() string    { return "doctor" }
func (Doctor) title() string   { return "Doctor" }
func (Doctor) section() string { return "/doctor" }

// Fails returns the number of failures.
func (p Doctor) Fails() int { return p.Count(diagnosis.Fail) }

// Warns returns the number of warnings.
func (p Doctor) Warns() int { return p.Count(diagnosis.Warn) }

// Problems returns the failures and the warnings.
func (p Doctor) Problems() []diagnosis.Check { return p.Checks[:p.Fails()+p.Warns()] }

// Passed returns the passed checks.
func (p Doctor) Passed() []diagnosis.Check { return p.Checks[p.Fails()+p.Warns():] }

func (h *Handler) showWebhooks(c *request.Call) error {
	all, err := h.access.Webhooks(c)
	if err != nil {
		return err
	}
	return h.show(c, http.StatusOK, Webhooks{views.All(all, views.OfWebhook)})
}

func (h *Handler) showWebhook(c *request.Call) error {
	p, l, err := h.listing(c, request.DeliveryStates...)
	if err != nil {
		return err
	}
	w, found, next, err := h.access.Deliveries(c, p)
	if err != nil {
		return err
	}
	if next > 0 {
		l.Next = listPath(c, p, next)
	}
	return h.show(c, http.StatusOK, Webhook{l, views.OfWebhook(w), views.All(found, views.OfDelivery)})
}

func (h *Handler) showDoctor(c *request.Call) error {
	report, err := h.access.Diagnosis(c)
	if err != nil {
		return err
	}
	return h.show(c, http.StatusOK, Doctor{report, !c.Caller.SeesAll()})
}

// failing returns the webhooks of which an operator should know, if the caller may see webhooks.
func failing(c *request.Call, access access.Access) (bad []views.Webhook, err error) {
	if !c.Caller.SeesAll() {
		return nil, nil
	}
	all, err := access.Webhooks(c)
	for _, w := range all {
		if w.Dead > 0 || w.State() != operate.WebhookActive && w.State() != operate.WebhookResting {
			bad = append(bad, views.OfWebhook(w))
		}
	}
	return bad, err
}
