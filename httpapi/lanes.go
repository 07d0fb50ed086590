package httpapi

import (
	"context"
	"net/http"

	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// An OperateStore reads for the operators' routes what access does not.
type OperateStore interface {
	Lanes(ctx context.Context, p operate.Page) ([]operate.LaneView, error)
	Workers(ctx context.Context) ([]presence.Heartbeat, error)
}

// lanes serves lanes, workers, agents and models.
type lanes struct {
	store  OperateStore
	access access.Access
}

func (o *lanes) list(c *request.Call) error {
	page, err := c.Page("cursor")
	if err != nil {
		return err
	}
	lanes, err := o.store.Lanes(c.Context(), page)
	if err != nil {
		return err
	}
	next := int64(0)
	if len(lanes) == page.Limit {
		next = page.Cursor + int64(len(lanes))
	}
	return c.Answer(http.StatusOK, listOf(lanes, views.OfLane, next))
}

// workers lists worker processes. They run turns of all agents, so the token must cover all.
func (o *lanes) workers(c *request.Call) error {
	if !c.Caller.SeesAll() {
		return request.Refuse(http.StatusForbidden, "workers serve all agents: use a token that is not restricted to some")
	}
	workers, err := o.store.Workers(c.Context())
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, listOf(workers, views.OfWorker, 0))
}

func (o *lanes) agents(c *request.Call) error {
	all, err := o.access.Agents(c)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, listOf(all, views.OfAgent, 0))
}

func (o *lanes) models(c *request.Call) error {
	all, err := o.access.Models(c)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, listOf(all, views.OfModel, 0))
}
