package httpapi

import (
	"context"
	"net/http"

	"turnkeeper"
	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
)

// An OperateStore is what the routes for operators read beside what access does for them.
type OperateStore interface {
	Lanes(ctx context.Context, p storage.Page) ([]storage.LaneView, error)
	Workers(ctx context.Context) ([]turnkeeper.Heartbeat, error)
}

// operate serves lanes, workers, agents and models.
type operate struct {
	store  OperateStore
	access access.Access
}

func (o *operate) lanes(c *request.Call) error {
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

// workers lists processes that run the turns of all agents, and so needs a token for all.
func (o *operate) workers(c *request.Call) error {
	if !c.Caller.SeesAll() {
		return request.Refuse(http.StatusForbidden, "workers are for all agents, and this token is not")
	}
	workers, err := o.store.Workers(c.Context())
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, listOf(workers, views.OfWorker, 0))
}

func (o *operate) agents(c *request.Call) error {
	all, err := o.access.Agents(c)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, listOf(all, views.OfAgent, 0))
}

func (o *operate) models(c *request.Call) error {
	all, err := o.access.Models(c)
	if err != nil {
		return err
	}
	return c.Answer(http.StatusOK, listOf(all, views.OfModel, 0))
}
