package httpapi

import (
	"context"
	"net/http"
	"strings"

	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// A ScheduleStore is the storage that the schedule routes need beyond access.Store.
type ScheduleStore interface {
	SchedulerSettings(ctx context.Context) (operate.SchedulerSettings, error)
	ResumeScheduler(ctx context.Context) error
}

// schedules serves schedules and the scheduler.
type schedules struct {
	store  ScheduleStore
	access access.Access
}

func (s *schedules) list(c *request.Call) error {
	all, err := s.access.Schedules(c)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, listOf(all, views.OfSchedule, 0))
}

// run answers 201 for a new message, and 200 if a message of the schedule was already waiting.
func (s *schedules) run(c *request.Call) error {
	id, waiting, err := s.access.RunSchedule(c)
	if err != nil {
		return err
	}
	c.W.Header().Set("Location", messagePath(id))
	status := http.StatusCreated
	if waiting {
		status = http.StatusOK
	}
	return c.Respond(status, views.ScheduleRun{MessageID: id, Waiting: waiting})
}

func (s *schedules) scheduler(c *request.Call) error {
	settings, err := s.store.SchedulerSettings(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, views.OfScheduler(settings))
}

// A pause is the body of POST /v1/scheduler/pause.
type pause struct {
	Reason string `json:"reason" schema:"minLength=1,maxLength=1000"`
}

func (s *schedules) pauseScheduler(c *request.Call) error {
	if err := access.CheckScheduler(c); err != nil {
		return err
	}
	var body pause
	if err := c.Read(request.BodyOverhead, &body); err != nil {
		return err
	}
	if err := s.access.PauseScheduler(c.Context(), strings.TrimSpace(body.Reason)); err != nil {
		return err
	}
	return s.scheduler(c)
}

func (s *schedules) resumeScheduler(c *request.Call) error {
	if err := access.CheckScheduler(c); err != nil {
		return err
	}
	if err := s.store.ResumeScheduler(c.Context()); err != nil {
		return err
	}
	return s.scheduler(c)
}
