package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

// form reads the form that a page of ours sent. A browser says by its headers where
// it comes from, and what says nothing is not a browser: it has the API.
func (c *call) form() error { return c.formUpTo(aroundBody) }

// formUpTo is form for one of at most limit bytes.
func (c *call) formUpTo(limit int64) error {
	if c.Header.Get("Sec-Fetch-Site") == "" && c.Header.Get("Origin") == "" {
		return refusal(http.StatusForbidden, "forms are for the page in a browser; programs use the API under /v1")
	}
	if kind, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return refusal(http.StatusUnsupportedMediaType, "the form must be application/x-www-form-urlencoded")
	}
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(readTime))
	c.Body = http.MaxBytesReader(c.w, c.Body, limit)
	err := c.ParseForm()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refusal(http.StatusRequestEntityTooLarge, "the form is longer than %d bytes", limit)
	}
	if err != nil {
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

func (c *call) goToCancelled(done operate.Cancelled) error {
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
	if errors.Is(err, operate.ErrMayRepeatEffects) {
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
		return noSchedule(agent, name)
	}
	if err != nil {
		return err
	}
	return c.goTo("/schedules?done=schedule")
}

func (a *API) formRunSchedule(c *call) error {
	if err := c.form(); err != nil {
		return err
	}
	id, waiting, err := a.run(c)
	if err != nil {
		return err
	}
	said := "ran"
	if waiting {
		said = "waits"
	}
	return c.goTo(fmt.Sprintf("/inbox/%d?done=%s", id, said))
}

// bytesFormEscape is what a byte may be written as in a form.
const bytesFormEscape = 3

// formSend puts a message into an inbox. A form that is sent twice is one message: each
// that is shown has a number of its own.
func (a *API) formSend(c *call) error {
	if err := c.formUpTo(int64(a.cfg.MaxMessageBytes)*2*bytesFormEscape + aroundBody); err != nil { // a browser ends lines with two bytes
		return err
	}
	m := turnkeeper.Submission{
		Agent: c.PostForm.Get("agent"), Conversation: strings.TrimSpace(c.PostForm.Get("conversation")),
		Body: strings.ReplaceAll(c.PostForm.Get("body"), "\r\n", "\n"),
	}
	if len(m.Body) > a.cfg.MaxMessageBytes {
		return refusal(http.StatusRequestEntityTooLarge, "the message has %d bytes, the limit is %d", len(m.Body), a.cfg.MaxMessageBytes)
	}
	if !c.caller.sees(m.Agent) {
		return refusal(http.StatusForbidden, "this token is not for the agent %q", m.Agent)
	}
	if number := c.PostForm.Get("number"); number != "" {
		sum := sha256.Sum256([]byte(strings.Join([]string{number, m.Agent, m.Conversation, m.Body}, "\x00")))
		m.Key = "page-" + hex.EncodeToString(sum[:16])
	}
	id, _, err := a.cfg.Store.Accept(c.Context(), m)
	if err != nil {
		return err
	}
	return c.goTo(fmt.Sprintf("/inbox/%d?done=sent", id))
}
