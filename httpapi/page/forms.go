package page

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// readForm reads a form sent by a page of this server. It refuses a request without the headers by
// which a browser states its origin (CSRF): programs use the API.
func readForm(c *request.Call) error { return readFormUpTo(c, request.BodyOverhead) }

// readFormUpTo is readForm for a form of at most limit bytes.
func readFormUpTo(c *request.Call, limit int64) error {
	if c.Header.Get("Sec-Fetch-Site") == "" && c.Header.Get("Origin") == "" {
		return request.Refuse(http.StatusForbidden,
			"forms can only be sent by a browser: programs use the API under /v1")
	}
	if kind, _, _ := mime.ParseMediaType(c.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return request.Refuse(http.StatusUnsupportedMediaType, "the form must be application/x-www-form-urlencoded")
	}
	control := http.NewResponseController(c.W)
	_ = control.SetReadDeadline(time.Now().Add(request.BodyTimeout))
	c.Body = http.MaxBytesReader(c.W, c.Body, limit)
	resume := c.PauseTimeout()
	err := c.ParseForm()
	resume()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return request.Refuse(http.StatusRequestEntityTooLarge, "the form is longer than %d bytes", limit)
	}
	if err != nil {
		return request.Refuse(http.StatusBadRequest, "the form is malformed")
	}
	_ = control.SetReadDeadline(time.Time{})
	for name, values := range c.PostForm {
		if !request.IsText(name) || !request.IsText(strings.Join(values, "")) {
			return request.Refuse(http.StatusBadRequest, "the form is not valid UTF-8 text without NUL characters")
		}
	}
	return nil
}

// readReason reads the form and the reason in it.
func readReason(c *request.Call) (string, error) {
	if err := readForm(c); err != nil {
		return "", err
	}
	reason := strings.TrimSpace(c.PostForm.Get("reason"))
	if len(reason) > request.MaxReason {
		return "", request.Refuse(http.StatusUnprocessableEntity, "the reason has %d bytes, the limit is %d",
			len(reason), request.MaxReason)
	}
	return reason, nil
}

func (h *Handler) cancelTurn(c *request.Call) error {
	id, err := request.ID[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	done, err := h.access.CancelTurn(c, id, reason)
	if err != nil {
		return err
	}
	return goToCancelled(c, done)
}

func (h *Handler) finishTurn(c *request.Call) error {
	id, err := request.ID[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	if _, err := h.access.FinishTurn(c, id, reason); err != nil {
		return err
	}
	return c.GoTo(fmt.Sprintf("/turns/%d?done=finishing", id))
}

func (h *Handler) cancelMessage(c *request.Call) error {
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	done, err := h.access.CancelMessage(c, reason)
	if err != nil {
		return err
	}
	return goToCancelled(c, done)
}

func goToCancelled(c *request.Call, done operate.Ended) error {
	notice := "told"
	if done.Closed {
		notice = "cancelled"
	}
	return c.GoTo(fmt.Sprintf("/turns/%d?done=%s", done.Turn, notice))
}

func (h *Handler) retryTurn(c *request.Call) error {
	id, err := request.ID[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	if err := readForm(c); err != nil {
		return err
	}
	done, _, err := h.access.RetryTurn(c, id, c.PostForm.Get("anyway") == "yes")
	if errors.Is(err, operate.ErrMayRepeatEffects) {
		return request.Refuse(http.StatusConflict, "%s; confirm in the form that this does no harm", err)
	}
	if err != nil {
		return err
	}
	notice := "retried"
	switch {
	case done.DueNow:
		notice = "due"
	case done.Repeat:
		notice = "repeated"
	}
	return c.GoTo(fmt.Sprintf("/inbox/%d?done=%s", done.Message, notice))
}

func (h *Handler) pauseScheduler(c *request.Call) error {
	if err := access.CheckScheduler(c); err != nil {
		return err
	}
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	if err := h.access.PauseScheduler(c.Context(), reason); err != nil {
		return err
	}
	return c.GoTo("/?done=paused")
}

func (h *Handler) resumeScheduler(c *request.Call) error {
	if err := access.CheckScheduler(c); err != nil {
		return err
	}
	if err := readForm(c); err != nil {
		return err
	}
	if err := h.cfg.Store.ResumeScheduler(c.Context()); err != nil {
		return err
	}
	return c.GoTo("/?done=resumed")
}

func (h *Handler) pauseSchedule(c *request.Call) error  { return h.changeSchedule(c, true) }
func (h *Handler) resumeSchedule(c *request.Call) error { return h.changeSchedule(c, false) }

func (h *Handler) changeSchedule(c *request.Call, paused bool) error {
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	err = access.OnSchedule(c, func(ctx context.Context, agent, name string) error {
		return h.cfg.Store.PauseSchedule(ctx, agent, name, paused, reason)
	})
	if err != nil {
		return err
	}
	return c.GoTo("/schedules?done=schedule")
}

func (h *Handler) runSchedule(c *request.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	id, waiting, err := h.access.RunSchedule(c)
	if err != nil {
		return err
	}
	notice := "ran"
	if waiting {
		notice = "waits"
	}
	return c.GoTo(fmt.Sprintf("/inbox/%d?done=%s", id, notice))
}

// bytesFormEscape is the maximum size of one escaped byte in a form (%0A).
const bytesFormEscape = 3

// send puts a message into an inbox. Each displayed form has its own number, which makes a form that is
// sent twice one message.
func (h *Handler) send(c *request.Call) error {
	// browsers send a newline as CRLF
	if err := readFormUpTo(c, int64(h.cfg.MaxMessageBytes)*2*bytesFormEscape+request.BodyOverhead); err != nil {
		return err
	}
	m := turnkeeper.Submission{
		Agent: c.PostForm.Get("agent"), User: c.PostForm.Get("user"),
		Conversation: strings.TrimSpace(c.PostForm.Get("conversation")),
		Body:         strings.ReplaceAll(c.PostForm.Get("body"), "\r\n", "\n"),
	}
	if len(m.Body) > h.cfg.MaxMessageBytes {
		return request.Refuse(http.StatusRequestEntityTooLarge, "the message has %d bytes, the limit is %d",
			len(m.Body), h.cfg.MaxMessageBytes)
	}
	if !c.Caller.Sees(m.Agent) {
		return request.Refuse(http.StatusForbidden, "this token does not cover the agent %q", m.Agent)
	}
	if number := c.PostForm.Get("number"); number != "" {
		sum := sha256.Sum256([]byte(strings.Join([]string{number, m.Agent, m.User, m.Conversation, m.Body}, "\x00")))
		m.Key = "page-" + hex.EncodeToString(sum[:16])
	}
	id, _, err := h.cfg.Store.AcceptFrom(c.Context(), storage.Sender{Token: c.Caller.TokenID(),
		Operates: c.Caller.May(request.ScopeOperate)}, m)
	if err != nil {
		return access.NotAccepted(c, m.Agent, err)
	}
	return c.GoTo(fmt.Sprintf("/inbox/%d?done=sent", id))
}

// retryFailed puts all failed messages into the inbox again.
func (h *Handler) retryFailed(c *request.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	if _, err := h.access.RetryFailed(c, operate.FailedScope{}); err != nil {
		return err
	}
	return c.GoTo("/inbox?state=waiting")
}
