// Package access reads and writes the store for the handlers of the API and the page, within the
// rights of the caller. It returns the same error for a missing thing and for one of an agent or a user that
// the token does not cover.
package access

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

// A Store reads and writes the database; *operate.Store implements it.
type Store interface {
	Message(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error)
	WaitingMessage(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error)
	ReplyTo(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Reply, error)
	CancelMessage(ctx context.Context, id turnkeeper.MessageID, reason string) (operate.Ended, error)
	FinishMessage(ctx context.Context, id turnkeeper.MessageID, reason string) (operate.Ended, error)
	RetryFailed(ctx context.Context, scope operate.FailedScope) ([]operate.BulkRetried, error)

	WhoseTurn(ctx context.Context, id turnkeeper.TurnID) (turnkeeper.ConversationKey, error)
	ViewTurn(ctx context.Context, id turnkeeper.TurnID) (operate.TurnView, error)
	CancelTurn(ctx context.Context, id turnkeeper.TurnID, reason string) (operate.Ended, error)
	FinishTurn(ctx context.Context, id turnkeeper.TurnID, reason string) (operate.Ended, error)
	Retry(ctx context.Context, id turnkeeper.MessageID, anyway bool) (operate.Retried, error)
	FindOutput(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error)
	ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from, to int64) (string, error)

	Agents(ctx context.Context) ([]turnkeeper.AgentRegistration, error)
	Definition(ctx context.Context, hash string) ([]byte, error)
	Models(ctx context.Context) ([]modelhealth.Health, error)
	Schedules(ctx context.Context) ([]turnkeeper.Schedule, error)
	RunSchedule(ctx context.Context, agent, name string) (id turnkeeper.MessageID, waiting bool, err error)
	PauseScheduler(ctx context.Context, reason string) error
	Levels(ctx context.Context) (operate.Levels, error)
	PinLevel(ctx context.Context, p operate.Pin) error
	UnpinLevel(ctx context.Context, agent string) error

	AskStore
	WebhookStore
	diagnosis.Store
}

// An Access checks a caller's rights and uses a store. It is safe for concurrent use.
type Access struct {
	store    Store
	fourEyes bool // the token that sent a message must not answer what its turn asks
	doctor   *doctor
}

// New returns an Access.
func New(store Store, fourEyes bool, settings diagnosis.Settings) Access {
	return Access{store, fourEyes, newDoctor(settings)}
}

// CheckTurn returns a 404 problem if the turn does not exist or is not visible to the caller.
func (a Access) CheckTurn(c *request.Call, id turnkeeper.TurnID) error {
	whose, err := a.store.WhoseTurn(c.Context(), id)
	if errors.Is(err, turnkeeper.ErrNotFound) || err == nil && !c.Caller.SeesWords(whose) {
		return request.Refuse(http.StatusNotFound, "there is no turn %d", id)
	}
	return err
}

// Turn reads the turn whose id is in the path, with its details.
func (a Access) Turn(c *request.Call) (v operate.TurnView, err error) {
	id, err := request.ID[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return v, err
	}
	if err := a.CheckTurn(c, id); err != nil {
		return v, err
	}
	v, err = a.store.ViewTurn(c.Context(), id)
	Screen(c, &v.Message)
	screenTree(c, v.Tree)
	return v, err
}

// CancelTurn cancels a turn.
func (a Access) CancelTurn(c *request.Call, id turnkeeper.TurnID, reason string) (operate.Ended, error) {
	if err := a.CheckTurn(c, id); err != nil {
		return operate.Ended{}, err
	}
	return a.store.CancelTurn(c.Context(), id, reason)
}

// FinishTurn lets a turn finish with what it has.
func (a Access) FinishTurn(c *request.Call, id turnkeeper.TurnID, reason string) (operate.Ended, error) {
	if err := a.CheckTurn(c, id); err != nil {
		return operate.Ended{}, err
	}
	return a.store.FinishTurn(c.Context(), id, reason)
}

// RetryTurn retries the message of a turn, and returns that message's id as of.
func (a Access) RetryTurn(c *request.Call, id turnkeeper.TurnID,
	anyway bool) (done operate.Retried, of turnkeeper.MessageID, err error) {
	if err := a.CheckTurn(c, id); err != nil {
		return done, 0, err
	}
	turn, err := a.store.ViewTurn(c.Context(), id)
	if err != nil {
		return done, 0, err
	}
	done, err = a.store.Retry(c.Context(), turn.Message.ID, anyway)
	return done, turn.Message.ID, err
}

// Output reads the output whose id is in the path, without its text.
func (a Access) Output(c *request.Call) (turnkeeper.Output, error) {
	id := turnkeeper.OutputID(c.PathValue("id"))
	o, err := a.store.FindOutput(c.Context(), id)
	if err == nil {
		err = a.CheckTurn(c, o.TurnID)
	}
	if _, hidden := errors.AsType[*request.Problem](err); hidden || errors.Is(err, turnkeeper.ErrNotFound) {
		return o, request.Refuse(http.StatusNotFound, "there is no output %.60q", id)
	}
	return o, err
}

// OutputText reads the characters of an output from from to before to.
func (a Access) OutputText(ctx context.Context, o turnkeeper.Output, from, to int64) (string, error) {
	return a.store.ReadOutput(ctx, o.TurnID, o.ID, from, min(to, o.Chars))
}

// Message reads the message whose id is in the path. Messages to sub-agents, and so their replies, hold what their
// parents know: who may only send does not see them.
func (a Access) Message(c *request.Call) (waiting.Message, error) {
	id, err := request.ID[turnkeeper.MessageID](c, "message")
	if err != nil {
		return waiting.Message{}, err
	}
	m, err := a.store.Message(c.Context(), id)
	if errors.Is(err, turnkeeper.ErrNotFound) || err == nil && !seesMessage(c.Caller, m.Message) {
		return waiting.Message{}, request.Refuse(http.StatusNotFound, "there is no message %d", id)
	}
	return m, err
}

func seesMessage(c request.Caller, m turnkeeper.Message) bool {
	return c.SeesWords(m.ConversationKey()) && (!m.ToSubAgent() || c.May(request.ScopeRead) || c.May(
		request.ScopeOperate))
}

// Answered reads a message, with the reasons why it waits, and its reply, or nil. The two are
// consistent: if the message was closed between the two reads, it is read again.
func (a Access) Answered(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, *turnkeeper.Reply, error) {
	m, err := a.store.WaitingMessage(ctx, id)
	if err != nil {
		return m, nil, err
	}
	reply, err := a.store.ReplyTo(ctx, id)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return m, nil, nil
	}
	if err == nil && m.ClosedAt.IsZero() {
		m, err = a.store.Message(ctx, id)
	}
	return m, &reply, err
}

// CancelMessage cancels the message of the path: at once if it waits, else by cancelling its turn.
func (a Access) CancelMessage(c *request.Call, reason string) (operate.Ended, error) {
	m, err := a.Message(c)
	if err != nil {
		return operate.Ended{}, err
	}
	return a.store.CancelMessage(c.Context(), m.ID, reason)
}

// FinishMessage lets the turn that handles the message of the path finish.
func (a Access) FinishMessage(c *request.Call, reason string) (operate.Ended, error) {
	m, err := a.Message(c)
	if err != nil {
		return operate.Ended{}, err
	}
	return a.store.FinishMessage(c.Context(), m.ID, reason)
}

// NotAccepted returns the error of a message to an agent that was not accepted, as the caller is told it: that of an
// unknown agent lists all others.
func NotAccepted(c *request.Call, agent string, err error) error {
	if errors.Is(err, turnkeeper.ErrUnknownAgent) && !c.Caller.SeesAll() {
		return request.Refuse(http.StatusUnprocessableEntity, "unknown agent %q", agent)
	}
	return err
}

// RetryFailed puts failed messages of the caller's agents into the inbox again.
func (a Access) RetryFailed(c *request.Call, scope operate.FailedScope) ([]operate.BulkRetried, error) {
	for _, agent := range scope.Agents {
		if !c.Caller.Sees(agent) {
			return nil, turnkeeper.ErrNotFound
		}
	}
	if len(scope.Agents) == 0 && !c.Caller.SeesAll() {
		scope.Agents = c.Caller.Token.Agents
	}
	return a.store.RetryFailed(c.Context(), scope)
}

// Models lists the models that the caller's agents use.
func (a Access) Models(c *request.Call) ([]modelhealth.Health, error) {
	all, err := a.store.Models(c.Context())
	if err != nil || c.Caller.SeesAll() {
		return all, err
	}
	for i := range all {
		unseen := func(agent string) bool { return !c.Caller.Sees(agent) }
		all[i].Agents, all[i].NeededBy = slices.DeleteFunc(all[i].Agents, unseen),
			slices.DeleteFunc(all[i].NeededBy, unseen)
	}
	return slices.DeleteFunc(all, func(h modelhealth.Health) bool { return len(h.Agents) == 0 }), nil
}

// Schedules lists the schedules visible to the caller.
func (a Access) Schedules(c *request.Call) ([]turnkeeper.Schedule, error) {
	all, err := a.store.Schedules(c.Context())
	return slices.DeleteFunc(all, func(s turnkeeper.Schedule) bool { return !c.Caller.Sees(s.Agent) }), err
}

// RunSchedule runs the schedule of the path now. waiting: a message of the schedule was already waiting.
func (a Access) RunSchedule(c *request.Call) (id turnkeeper.MessageID, waiting bool, err error) {
	err = OnSchedule(c, func(ctx context.Context, agent, name string) (err error) {
		id, waiting, err = a.store.RunSchedule(ctx, agent, name)
		return err
	})
	return id, waiting, err
}

// OnSchedule calls do with the schedule of the path, if it is visible to the caller.
func OnSchedule(c *request.Call, do func(ctx context.Context, agent, name string) error) error {
	agent, name := c.PathValue("agent"), c.PathValue("name")
	err := turnkeeper.ErrNotFound
	if c.Caller.Sees(agent) {
		err = do(c.Context(), agent, name)
	}
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return request.Refuse(http.StatusNotFound, "agent %.60q has no schedule %.60q", agent, name)
	}
	return err
}

// CheckScheduler refuses a token that is restricted to some agents: the scheduler serves all of them.
func CheckScheduler(c *request.Call) error {
	if c.Caller.SeesAll() {
		return nil
	}
	return request.Refuse(http.StatusForbidden,
		"the scheduler serves all agents: use a token that is not restricted to some")
}

// PauseScheduler pauses the scheduler. A reason is required.
func (a Access) PauseScheduler(ctx context.Context, reason string) error {
	if reason == "" || len(reason) > request.MaxReason || !request.IsText(reason) {
		return request.Refuse(http.StatusUnprocessableEntity,
			"reason must say why the scheduler is paused, in 1 to %d bytes of text", request.MaxReason)
	}
	return a.store.PauseScheduler(ctx, reason)
}
