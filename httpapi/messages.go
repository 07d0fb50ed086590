package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/views"
)

// A submission is the body of POST /v1/messages.
type submission struct {
	Agent        string `json:"agent"`
	Body         string `json:"body"`
	Conversation string `json:"conversation"`
	Priority     int    `json:"priority"`
	DueAt        string `json:"due_at"`
}

// Beside the body there is little in a submission; each byte of the body may be
// written as six.
const (
	aroundBody  = 16 << 10
	bytesEscape = 6
)

func (a *API) postMessage(c *call) error {
	wait, err := waitOf(c)
	if err == nil {
		err = c.checkKey()
	}
	if err != nil {
		return err
	}
	var s submission
	if err := c.read(int64(a.cfg.MaxMessageBytes)*bytesEscape+aroundBody, &s); err != nil {
		return err
	}
	if len(s.Body) > a.cfg.MaxMessageBytes {
		return refusal(http.StatusRequestEntityTooLarge, "the message has %d bytes, the limit is %d", len(s.Body), a.cfg.MaxMessageBytes)
	}
	if !c.caller.sees(s.Agent) {
		return refusal(http.StatusForbidden, "this token is not for the agent %q", s.Agent)
	}
	due, err := dueOf(s.DueAt)
	if err != nil {
		return err
	}
	id, repeated, err := a.cfg.Store.Accept(c.Context(), turnkeeper.Submission{
		Agent: s.Agent, Body: s.Body, Conversation: s.Conversation, Priority: s.Priority, DueAt: due,
		Key: c.Header.Get("Idempotency-Key"), TraceParent: traceParent(c.Header),
	})
	if errors.Is(err, turnkeeper.ErrUnknownAgent) && !c.caller.seesAll() {
		return refusal(http.StatusUnprocessableEntity, "unknown agent %q", s.Agent) // the sentence of the database names the others
	}
	if err != nil {
		return err
	}
	answered := true
	if wait > 0 {
		if answered, err = a.await(c.Context(), id, wait); err != nil {
			return err
		}
	}
	view, err := a.message(c, id)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", fmt.Sprintf("/v1/messages/%d", id))
	switch {
	case !answered:
		return c.answer(http.StatusAccepted, view)
	case repeated:
		return c.answer(http.StatusOK, view)
	default:
		return c.answer(http.StatusCreated, view)
	}
}

// dueOf reads due_at. The zero time is at once.
func dueOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	due, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, refusal(http.StatusBadRequest, "due_at must be a time with its offset, such as 2006-01-02T15:04:05Z (RFC 3339), or be left out")
	}
	return due, nil
}

const headerKey = "Idempotency-Key"

// checkKey refuses what does not say one key: who sends it counts on a repeat being one.
func (c *call) checkKey() error {
	if keys := c.Header.Values(headerKey); len(keys) > 1 || len(keys) == 1 && strings.TrimSpace(keys[0]) == "" {
		return refusal(http.StatusBadRequest, "the header %s must hold one key, or not be sent", headerKey)
	}
	return nil
}

// maxTraceParent is what a traceparent of a later version may have.
const maxTraceParent = 256

// traceParent is the sender's trace context, if it is one.
func traceParent(h http.Header) string {
	value := h.Get("Traceparent")
	if _, ok := turnkeeper.ParseTraceParent(value); !ok || len(value) > maxTraceParent {
		return ""
	}
	return value
}

func (a *API) getMessage(c *call) error {
	wait, err := waitOf(c)
	if err != nil {
		return err
	}
	m, err := a.mayMessage(c)
	if err == nil && wait > 0 {
		_, err = a.await(c.Context(), m.ID, wait)
	}
	if err != nil {
		return err
	}
	view, err := a.message(c, m.ID)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, view)
}

// An answeredView is a message with its reply.
type answeredView struct {
	views.Message
	Reply *views.Reply `json:"reply"`
}

// message is a message with its reply, if there is one. Who may only send is told why it waits, and not what
// is for operators: workers, errors, the reason of a pause.
func (a *API) message(c *call, id turnkeeper.MessageID) (answeredView, error) {
	ctx := c.Context()
	m, err := a.cfg.Store.WaitingMessage(ctx, id)
	if err != nil {
		return answeredView{}, err
	}
	m, reply, err := a.withReply(ctx, m)
	if !c.caller.may(ScopeRead) {
		m.LastError = ""
		for i := range m.Waits {
			m.Waits[i].Worker, m.Waits[i].Why = "", ""
		}
	}
	view := answeredView{Message: views.OfMessage(m)}
	if reply != nil {
		view.Reply = new(views.OfReply(*reply))
	}
	return view, err
}

// withReply reads the reply to a message, nil if there is none. A message that is closed has
// its reply, and one that is open has none: the message is read again where it was closed
// after it was read.
func (a *API) withReply(ctx context.Context, m turnkeeper.Message) (turnkeeper.Message, *turnkeeper.Reply, error) {
	reply, err := a.cfg.Store.ReplyTo(ctx, m.ID)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return m, nil, nil
	}
	if err == nil && m.ClosedAt.IsZero() {
		m, err = a.cfg.Store.Message(ctx, m.ID)
	}
	return m, &reply, err
}

// await waits until a message has its reply, or is closed without one, and is
// false when the time is over first or the process stops.
func (a *API) await(ctx context.Context, id turnkeeper.MessageID, wait time.Duration) (answered bool, err error) {
	rings, cancel := a.cfg.Rings()
	defer cancel()
	over := time.NewTimer(wait)
	defer over.Stop()
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for {
		m, err := a.cfg.Store.Message(ctx, id)
		if err != nil || !m.ClosedAt.IsZero() {
			return true, err
		}
		select {
		case <-rings:
		case <-poll.C:
		case <-over.C:
			return false, nil
		case <-a.draining:
			return false, nil
		case <-ctx.Done():
			return false, errGone
		}
	}
}
