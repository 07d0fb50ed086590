package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/internal/views"
)

func (a *API) listLanes(c *call) error {
	page, err := c.page("cursor")
	if err != nil {
		return err
	}
	lanes, err := a.cfg.Store.Lanes(c.Context(), page)
	if err != nil {
		return err
	}
	next := int64(0)
	if len(lanes) == page.Limit {
		next = page.Cursor + int64(len(lanes))
	}
	return c.answer(http.StatusOK, listOf(lanes, views.OfLane, next))
}

func (a *API) listSchedules(c *call) error {
	all, err := a.cfg.Store.Schedules(c.Context())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s turnkeeper.Schedule) bool { return !c.caller.sees(s.Agent) })
	return c.answer(http.StatusOK, listOf(all, views.OfSchedule, 0))
}

func (a *API) listAgents(c *call) error {
	all, err := a.cfg.Store.Agents(c.Context())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r turnkeeper.AgentRegistration) bool { return !c.caller.sees(r.Name) })
	return c.answer(http.StatusOK, listOf(all, views.OfAgent, 0))
}

func (a *API) getScheduler(c *call) error {
	settings, err := a.cfg.Store.SchedulerSettings(c.Context())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, views.OfScheduler(settings))
}

// maxReason bounds why something is done.
const maxReason = 1000

func (a *API) pauseScheduler(c *call) error {
	if err := c.forAll(); err != nil {
		return err
	}
	var body struct {
		Reason string `json:"reason"`
	}
	if err := c.read(aroundBody, &body); err != nil {
		return err
	}
	if err := a.pause(c.Context(), strings.TrimSpace(body.Reason)); err != nil {
		return err
	}
	return a.getScheduler(c)
}

func (a *API) pause(ctx context.Context, reason string) error {
	if reason == "" || len(reason) > maxReason || !isText(reason) {
		return refusal(http.StatusUnprocessableEntity, "say in reason why the scheduler is paused, in at most %d bytes: others will ask", maxReason)
	}
	return a.cfg.Store.PauseScheduler(ctx, reason)
}

func (a *API) resumeScheduler(c *call) error {
	if err := c.forAll(); err != nil {
		return err
	}
	if err := a.cfg.Store.ResumeScheduler(c.Context()); err != nil {
		return err
	}
	return a.getScheduler(c)
}

// forAll refuses a token that is for some agents: the scheduler is everybody's.
func (c *call) forAll() error {
	if c.caller.seesAll() {
		return nil
	}
	return refusal(http.StatusForbidden, "the scheduler is for all agents, and this token is not")
}
