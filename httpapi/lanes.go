package httpapi

import (
	"context"
	"net/http"
	"time"

	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/survival"
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
	access.ScreenLanes(c, lanes)
	next := int64(0)
	if len(lanes) == page.Limit {
		next = page.Cursor + int64(len(lanes))
	}
	return c.Respond(http.StatusOK, listOf(lanes, views.OfLane, next))
}

func (o *lanes) levels(c *request.Call) error {
	all, err := o.access.Levels(c)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, views.OfLevels(all))
}

// A pinning is the body of POST /v1/levels/pin.
type pinning struct {
	Agent   string `json:"agent,omitempty" doc:"empty: all agents that have no pin of their own"`
	Level   string `json:"level" schema:"ref=SurvivalLevel"`
	Seconds int    `json:"for_seconds,omitempty" schema:"minimum=0,maximum=31622400,default=0" doc:"how long the pin holds; 0: until it is unpinned"`
	Reason  string `json:"reason,omitempty" schema:"maxLength=1000" doc:"shown to operators"`
	By      string `json:"by,omitempty" schema:"maxLength=1000" doc:"who pins it; with a token, the token's name is recorded instead"`
}

func (o *lanes) pinLevel(c *request.Call) error {
	var body pinning
	if err := c.Read(request.BodyOverhead, &body); err != nil {
		return err
	}
	err := o.access.PinLevel(c, operate.Pin{
		Agent: body.Agent, Level: survival.Level(body.Level), By: body.By, Reason: body.Reason,
		For: time.Duration(body.Seconds) * time.Second,
	})
	if err != nil {
		return err
	}
	return o.levels(c)
}

// An unpinning is the body of POST /v1/levels/unpin.
type unpinning struct {
	Agent string `json:"agent,omitempty" doc:"empty: the pin of all agents"`
}

func (o *lanes) unpinLevel(c *request.Call) error {
	var body unpinning
	if err := c.Read(request.BodyOverhead, &body); err != nil {
		return err
	}
	if err := o.access.UnpinLevel(c, body.Agent); err != nil {
		return err
	}
	return o.levels(c)
}

// workers lists worker processes. They run turns of all agents, so the token must cover all.
func (o *lanes) workers(c *request.Call) error {
	if !c.Caller.SeesAll() {
		return request.Refuse(http.StatusForbidden,
			"workers serve all agents: use a token that is not restricted to some")
	}
	workers, err := o.store.Workers(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, listOf(workers, views.OfWorker, 0))
}

func (o *lanes) agents(c *request.Call) error {
	all, err := o.access.Agents(c)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, listOf(all, views.OfAgent, 0))
}

func (o *lanes) agent(c *request.Call) error {
	v, err := o.access.Agent(c)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, v)
}

// diagnosis answers 200 whatever the findings are.
func (o *lanes) diagnosis(c *request.Call) error {
	report, err := o.access.Diagnosis(c)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, views.OfDiagnosis(report))
}

func (o *lanes) models(c *request.Call) error {
	all, err := o.access.Models(c)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, listOf(all, views.OfModel, 0))
}
