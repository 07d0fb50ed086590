package httpapi

import (
	"context"
	"errors"
	"fmt"
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

// runSchedule answers 201 for a new message, and 200 when one of the schedule waits already.
func (a *API) runSchedule(c *call) error {
	id, waiting, err := a.run(c)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", fmt.Sprintf("/v1/messages/%d", id))
	status := http.StatusCreated
	if waiting {
		status = http.StatusOK
	}
	return c.answer(status, views.ScheduleRun{MessageID: id, Waiting: waiting})
}

// run runs the schedule of the path.
func (a *API) run(c *call) (id turnkeeper.MessageID, waiting bool, err error) {
	agent, name := c.PathValue("agent"), c.PathValue("name")
	err = turnkeeper.ErrNotFound
	if c.caller.sees(agent) {
		id, waiting, err = a.cfg.Store.RunSchedule(c.Context(), agent, name)
	}
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return 0, false, noSchedule(agent, name)
	}
	return id, waiting, err
}

func noSchedule(agent, name string) *problem {
	return refusal(http.StatusNotFound, "there is no schedule %.60q of %.60q", name, agent)
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
