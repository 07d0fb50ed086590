package httpapi

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

// form reads the form that a page of ours sent. A browser says by its headers where
// it comes from, and what says nothing is not a browser: it has the API.
func (c *call) form() error {
	if c.Header.Get("Sec-Fetch-Site") == "" && c.Header.Get("Origin") == "" {
		return refusal(http.StatusForbidden, "forms are for the page in a browser; programs use the API under /v1")
	}
	if kind, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return refusal(http.StatusUnsupportedMediaType, "the form must be application/x-www-form-urlencoded")
	}
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(readTime))
	c.Body = http.MaxBytesReader(c.w, c.Body, aroundBody)
	if err := c.ParseForm(); err != nil {
		return refusal(http.StatusBadRequest, "the form cannot be read")
	}
	_ = control.SetReadDeadline(time.Time{})
	return nil
}

// reason is why something is done, as the form says.
func (c *call) reason() (string, error) {
	if err := c.form(); err != nil {
		return "", err
	}
	reason := strings.TrimSpace(c.PostForm.Get("reason"))
	if len(reason) > maxReason {
		return "", refusal(http.StatusUnprocessableEntity, "the reason has %d bytes, the limit is %d", len(reason), maxReason)
	}
	return reason, nil
}

func (a *API) formCancelTurn(c *call) error {
	id, err := idOf[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	reason, err := c.reason()
	if err != nil {
		return err
	}
	if err := a.mayTurn(c, id); err != nil {
		return err
	}
	done, err := a.cfg.Store.CancelTurn(c.Context(), id, reason)
	if err != nil {
		return err
	}
	return c.goToCancelled(done)
}

func (a *API) formCancelMessage(c *call) error {
	reason, err := c.reason()
	if err != nil {
		return err
	}
	m, err := a.mayMessage(c)
	if err != nil {
		return err
	}
	done, err := a.cfg.Store.CancelMessage(c.Context(), m.ID, reason)
	if err != nil {
		return err
	}
	return c.goToCancelled(done)
}

func (c *call) goToCancelled(done storage.Cancelled) error {
	said := "told"
	if done.Closed {
		said = "cancelled"
	}
	return c.goTo(fmt.Sprintf("/turns/%d?done=%s", done.Turn, said))
}

func (a *API) formRetryTurn(c *call) error {
	id, err := idOf[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	if err := c.form(); err != nil {
		return err
	}
	done, _, err := a.retry(c, id, c.PostForm.Get("anyway") == "yes")
	if errors.Is(err, storage.ErrMayRepeatEffects) {
		return refusal(http.StatusConflict, "%s; say in the form that this does no harm", err)
	}
	if err != nil {
		return err
	}
	said := "retried"
	switch {
	case done.DueNow:
		said = "due"
	case done.Repeat:
		said = "repeated"
	}
	return c.goTo(fmt.Sprintf("/inbox/%d?done=%s", done.Message, said))
}

func (a *API) formPauseScheduler(c *call) error {
	if err := c.forAll(); err != nil {
		return err
	}
	reason, err := c.reason()
	if err != nil {
		return err
	}
	if err := a.pause(c.Context(), reason); err != nil {
		return err
	}
	return c.goTo("/?done=paused")
}

func (a *API) formResumeScheduler(c *call) error {
	if err := c.forAll(); err != nil {
		return err
	}
	if err := c.form(); err != nil {
		return err
	}
	if err := a.cfg.Store.ResumeScheduler(c.Context()); err != nil {
		return err
	}
	return c.goTo("/?done=resumed")
}

func (a *API) formPauseSchedule(c *call) error  { return a.changeSchedule(c, true) }
func (a *API) formResumeSchedule(c *call) error { return a.changeSchedule(c, false) }

func (a *API) changeSchedule(c *call, paused bool) error {
	reason, err := c.reason()
	if err != nil {
		return err
	}
	agent, name := c.PathValue("agent"), c.PathValue("name")
	err = turnkeeper.ErrNotFound
	if c.caller.sees(agent) {
		err = a.cfg.Store.PauseSchedule(c.Context(), agent, name, paused, reason)
	}
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return refusal(http.StatusNotFound, "there is no schedule %.60q of %.60q", name, agent)
	}
	if err != nil {
		return err
	}
	return c.goTo("/schedules?done=schedule")
}
