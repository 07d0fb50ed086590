package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// A MessageStore reads and writes for the message routes what access does not.
type MessageStore interface {
	AcceptFrom(ctx context.Context, from storage.Sender,
		m turnkeeper.Submission) (id turnkeeper.MessageID, repeated bool, err error)
	Message(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error)
	FindMessages(ctx context.Context, f operate.Search) (found []waiting.Message, next int64, err error)
	Transcript(ctx context.Context, p operate.Page,
		conversation string) (exchanges []operate.Exchange, next int64, err error)
	Replies(ctx context.Context, p operate.Page) ([]turnkeeper.Reply, error)
}

// messages serves the inbox and the outbox.
type messages struct {
	store    MessageStore
	access   access.Access
	rings    func() (<-chan struct{}, func())
	draining <-chan struct{}
	maxBytes int // limit of a message's body
}

// A submission is the body of POST /v1/messages.
type submission struct {
	Agent        string  `json:"agent"`
	Body         string  `json:"body" schema:"minLength=1"`
	User         string  `json:"user,omitempty" schema:"maxLength=200" doc:"whose conversation it is; empty: that of the token, or no user's"`
	Conversation string  `json:"conversation,omitempty" doc:"empty: main"`
	Priority     int     `json:"priority,omitempty" schema:"minimum=-1000,maximum=1000,default=0"`
	DueAt        *string `json:"due_at,omitempty" schema:"format=date-time" doc:"earliest time to run; left out or past: at once; at most ten years ahead"`
}

// post accepts a message.
func (m *messages) post(c *request.Call) error {
	wait, err := c.Wait()
	if err == nil {
		err = c.CheckKey()
	}
	if err != nil {
		return err
	}
	var s submission
	if err := c.Read(int64(m.maxBytes)*request.BytesPerEscape+request.BodyOverhead, &s); err != nil {
		return err
	}
	if len(s.Body) > m.maxBytes {
		return request.Refuse(http.StatusRequestEntityTooLarge, "the message has %d bytes, the limit is %d",
			len(s.Body), m.maxBytes)
	}
	if !c.Caller.Sees(s.Agent) {
		return request.Refuse(http.StatusForbidden, "this token does not cover the agent %q", s.Agent)
	}
	user, err := c.Sender(s.User)
	if err != nil {
		return err
	}
	due, err := parseDue(s.DueAt)
	if err != nil {
		return err
	}
	id, repeated, err := m.store.AcceptFrom(c.Context(), storage.Sender{Token: c.Caller.TokenID(),
		Operates: c.Caller.May(request.ScopeOperate)}, turnkeeper.Submission{
		Agent: s.Agent, User: user, Body: s.Body, Conversation: s.Conversation, Priority: s.Priority, DueAt: due,
		Key: c.Header.Get(request.IdempotencyKey), TraceParent: c.TraceParent(),
	})
	if err != nil {
		return access.NotAccepted(c, s.Agent, err)
	}
	answered := true
	if wait > 0 {
		if answered, err = m.await(c, id, wait); err != nil {
			return err
		}
	}
	view, err := m.view(c, id)
	if err != nil {
		return err
	}
	c.W.Header().Set("Location", messagePath(id))
	switch {
	case !answered:
		return c.Respond(http.StatusAccepted, view)
	case repeated:
		return c.Respond(http.StatusOK, view)
	default:
		return c.Respond(http.StatusCreated, view)
	}
}

func messagePath(id turnkeeper.MessageID) string { return fmt.Sprintf("/v1/messages/%d", id) }

// parseDue parses due_at. nil is the zero time: at once.
func parseDue(text *string) (time.Time, error) {
	if text == nil {
		return time.Time{}, nil
	}
	due, err := time.Parse(time.RFC3339, *text)
	if err != nil && *text == "" {
		return time.Time{}, request.Refuse(http.StatusBadRequest,
			"due_at is empty: leave it out, or send null, for a message that is due at once")
	}
	if err != nil {
		return time.Time{}, request.Refuse(http.StatusBadRequest,
			"due_at must be a time with its offset (RFC 3339), such as 2006-01-02T15:04:05Z")
	}
	return due, nil
}

func (m *messages) get(c *request.Call) error {
	wait, err := c.Wait()
	if err != nil {
		return err
	}
	message, err := m.access.Message(c)
	if err == nil && wait > 0 {
		_, err = m.await(c, message.ID, wait)
	}
	if err != nil {
		return err
	}
	view, err := m.view(c, message.ID)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, view)
}

// A messageWithReply is a message with its reply.
type messageWithReply struct {
	views.Message
	Reply *views.Reply `json:"reply"`
}

// view returns a message with its reply, if it has one.
func (m *messages) view(c *request.Call, id turnkeeper.MessageID) (messageWithReply, error) {
	message, reply, err := m.access.Answered(c.Context(), id)
	if err != nil {
		return messageWithReply{}, err
	}
	access.Screen(c, &message)
	view := messageWithReply{Message: views.OfMessage(message)}
	if reply != nil {
		view.Reply = new(views.OfReply(*reply))
	}
	return view, nil
}

// await waits until a message is closed. It returns false if the time is over first or the process
// stops.
func (m *messages) await(c *request.Call, id turnkeeper.MessageID, wait time.Duration) (answered bool, err error) {
	rings, cancel := m.rings()
	defer cancel()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for {
		message, err := m.store.Message(c.Context(), id)
		if err != nil || !message.ClosedAt.IsZero() {
			return true, err
		}
		resume := c.PauseTimeout()
		select {
		case <-rings:
		case <-poll.C:
		case <-timeout.C:
			return false, nil
		case <-m.draining:
			return false, nil
		case <-c.Context().Done():
			return false, c.Context().Err()
		}
		resume()
	}
}

func (m *messages) list(c *request.Call) error {
	f, err := c.Search(request.MessageStates...)
	if err != nil {
		return err
	}
	found, next, err := m.store.FindMessages(c.Context(), f)
	if err != nil {
		return err
	}
	access.ScreenMessages(c, found)
	return c.Respond(http.StatusOK, listOf(found, views.OfMessage, next))
}

func (m *messages) transcript(c *request.Call) error {
	p, conversation, err := c.Conversation()
	if err != nil {
		return err
	}
	exchanges, next, err := m.store.Transcript(c.Context(), p, conversation)
	if err != nil {
		return err
	}
	access.ScreenExchanges(c, exchanges)
	return c.Respond(http.StatusOK, listOf(exchanges, views.OfExchange, next))
}

// cancel cancels a waiting message at once, else its turn.
func (m *messages) cancel(c *request.Call) error {
	return endWith(c, func(reason string) (operate.Ended, error) {
		return m.access.CancelMessage(c, reason)
	}, views.OfCancelled)
}

// finish lets the turn that handles a message finish.
func (m *messages) finish(c *request.Call) error {
	return endWith(c, func(reason string) (operate.Ended, error) {
		return m.access.FinishMessage(c, reason)
	}, views.OfFinished)
}

// A failedMessages is the body of POST /v1/messages/retry: it selects the messages to retry.
type failedMessages struct {
	State      string `json:"state" schema:"enum=failed"`
	Since      string `json:"since,omitempty" doc:"only messages that failed within this duration, such as 90m; empty: at any time"`
	Agent      string `json:"agent,omitempty" doc:"only messages of this agent; empty: of all"`
	ErrorClass string `json:"error_class,omitempty" doc:"only messages whose last turn failed with this error class; empty: any"`
}

// retryFailed puts failed messages into the inbox again.
func (m *messages) retryFailed(c *request.Call) error {
	var body failedMessages
	if err := c.Read(request.BodyOverhead, &body); err != nil {
		return err
	}
	if body.State != string(turnkeeper.MessageFailed) {
		return request.Refuse(http.StatusUnprocessableEntity,
			`state is %q: only "failed" messages can be retried in bulk`, body.State)
	}
	if body.ErrorClass != "" && !slices.Contains(views.ErrorClasses(), body.ErrorClass) {
		return request.Refuse(http.StatusUnprocessableEntity, "error_class is %q: it must be one of %s",
			body.ErrorClass, strings.Join(views.ErrorClasses(), ", "))
	}
	scope := operate.FailedScope{ErrorClass: body.ErrorClass}
	if body.Since != "" {
		span, err := strictyaml.ParseDuration(body.Since)
		if err != nil || span < 0 {
			return request.Refuse(http.StatusUnprocessableEntity, "since is %q: it must be a duration such as 90m",
				body.Since)
		}
		scope.Since = time.Now().Add(-span)
	}
	if body.Agent != "" {
		scope.Agents = []string{body.Agent}
	}
	all, err := m.access.RetryFailed(c, scope)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, views.OfBulkRetried(all))
}

func (m *messages) replies(c *request.Call) error {
	page, err := c.Page("after")
	if err != nil {
		return err
	}
	ofSubAgents, err := c.Flag("sub_agents", true)
	if err != nil {
		return err
	}
	page.TopOnly = !ofSubAgents
	replies, err := m.store.Replies(c.Context(), page)
	if err != nil {
		return err
	}
	next := int64(0)
	if len(replies) > 0 {
		next = int64(replies[len(replies)-1].ID)
	}
	return c.Respond(http.StatusOK, listOf(replies, views.OfReply, next))
}
