package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"turnkeeper"
	"turnkeeper/internal/views"
)

var turnStates = []string{
	string(turnkeeper.TurnQueued), string(turnkeeper.TurnRunning), string(turnkeeper.TurnWaiting), string(turnkeeper.TurnSucceeded),
	string(turnkeeper.TurnDegraded), string(turnkeeper.TurnFailed), string(turnkeeper.TurnCancelled),
}

func (a *API) getTurn(c *call) error {
	id, err := idOf[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	if err := a.mayTurn(c, id); err != nil {
		return err
	}
	v, err := a.cfg.Store.ViewTurn(c.Context(), id)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, views.OfWholeTurn(v))
}

// mayTurn refuses turns that do not exist and those that are not the caller's in
// the same words.
func (a *API) mayTurn(c *call, id turnkeeper.TurnID) error {
	agent, err := a.cfg.Store.AgentOfTurn(c.Context(), id)
	if errors.Is(err, turnkeeper.ErrNotFound) || err == nil && !c.caller.sees(agent) {
		return refusal(http.StatusNotFound, "there is no turn %d", id)
	}
	return err
}

func (a *API) listReplies(c *call) error {
	page, err := c.page("after")
	if err != nil {
		return err
	}
	ofSubAgents, err := c.flag("sub_agents", true)
	if err != nil {
		return err
	}
	page.TopOnly = !ofSubAgents
	replies, err := a.cfg.Store.Replies(c.Context(), page)
	if err != nil {
		return err
	}
	next := int64(0)
	if len(replies) > 0 {
		next = int64(replies[len(replies)-1].ID)
	}
	return c.answer(http.StatusOK, listOf(replies, views.OfReply, next))
}

// mayOutput finds an output, and refuses those that do not exist and those that
// are not the caller's in the same words.
func (a *API) mayOutput(c *call) (turnkeeper.Output, error) {
	id := turnkeeper.OutputID(c.PathValue("id"))
	o, err := a.cfg.Store.FindOutput(c.Context(), id)
	if err == nil {
		err = a.mayTurn(c, o.TurnID)
	}
	if _, hidden := errors.AsType[*problem](err); hidden || errors.Is(err, turnkeeper.ErrNotFound) {
		return o, refusal(http.StatusNotFound, "there is no output %.60q", id)
	}
	return o, err
}

// getOutput gives a stored result as it is: never as something that a browser
// would run.
func (a *API) getOutput(c *call) error {
	o, err := a.mayOutput(c)
	if err != nil {
		return err
	}
	if o.Bytes != nil {
		return a.bytesOf(c, o.ID)
	}
	from, err := c.number("from", 0)
	if err != nil {
		return err
	}
	to, err := c.number("to", o.Chars)
	if err != nil {
		return err
	}
	if from > to {
		return refusal(http.StatusBadRequest, "from is after to")
	}
	text, err := a.text(c.Context(), o, from, to)
	if err != nil {
		return err
	}
	return c.content("text/plain; charset=utf-8", []byte(text))
}

func (a *API) text(ctx context.Context, o turnkeeper.Output, from, to int64) (string, error) {
	return a.cfg.Store.ReadOutput(ctx, o.TurnID, o.ID, from, min(to, o.Chars))
}

func (a *API) bytesOf(c *call, id turnkeeper.OutputID) error {
	o, err := a.cfg.Store.Output(c.Context(), id)
	if err != nil {
		return err
	}
	size := int64(len(o.Bytes))
	from, err := c.number("from", 0)
	if err != nil {
		return err
	}
	to, err := c.number("to", size)
	if err != nil {
		return err
	}
	from, to = min(from, size), min(to, size)
	if from > to {
		return refusal(http.StatusBadRequest, "from is after to")
	}
	c.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", "output.bin"))
	return c.content("application/octet-stream", o.Bytes[from:to])
}

func (c *call) content(kind string, content []byte) error {
	c.w.Header().Set("Content-Type", kind)
	if _, err := c.w.Write(content); err != nil {
		return errGone
	}
	return nil
}
