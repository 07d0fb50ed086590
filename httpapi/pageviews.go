package httpapi

import (
	"errors"
	"net/http"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/page"
)

func (a *API) showTurn(c *call) error {
	id, err := idOf[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	if err := a.mayTurn(c, id); err != nil {
		return err
	}
	v := page.Turn{Now: time.Now()}
	if v.TurnView, err = a.cfg.Store.ViewTurn(c.Context(), id); err != nil {
		return err
	}
	if v.Attempts, err = a.cfg.Store.TurnsOf(c.Context(), v.Message.ID); err != nil {
		return err
	}
	if v.As, v.Of, err = a.cfg.Store.RetriesOf(c.Context(), v.Message.ID); err != nil {
		return err
	}
	return a.show(c, http.StatusOK, v)
}

// mayMessage reads a message, and refuses those that do not exist and those that
// are not the caller's in the same words.
func (a *API) mayMessage(c *call) (turnkeeper.Message, error) {
	id, err := idOf[turnkeeper.MessageID](c, "message")
	if err != nil {
		return turnkeeper.Message{}, err
	}
	m, err := a.cfg.Store.Message(c.Context(), id)
	if errors.Is(err, turnkeeper.ErrNotFound) || err == nil && !c.caller.sees(m.Agent) {
		return turnkeeper.Message{}, refusal(http.StatusNotFound, "there is no message %d", id)
	}
	return m, err
}

func (a *API) showMessage(c *call) error {
	m, err := a.mayMessage(c)
	if err != nil {
		return err
	}
	waiting, err := a.cfg.Store.WaitingMessage(c.Context(), m.ID)
	if err != nil {
		return err
	}
	var v page.Message
	if v.Message, v.Reply, err = a.withReply(c.Context(), waiting); err != nil {
		return err
	}
	if v.Turns, err = a.cfg.Store.TurnsOf(c.Context(), m.ID); err != nil {
		return err
	}
	if v.As, v.Of, err = a.cfg.Store.RetriesOf(c.Context(), m.ID); err != nil {
		return err
	}
	return a.show(c, http.StatusOK, v)
}

// outputStep is how much of an output's text a page shows, in characters.
const outputStep = 20_000

func (a *API) showOutput(c *call) error {
	o, err := a.mayOutput(c)
	if err != nil {
		return err
	}
	v := page.Output{Output: o, Step: outputStep}
	if v.From, err = c.number("from", 0); err != nil {
		return err
	}
	v.From = min(v.From, o.Chars)
	v.To = min(v.From+outputStep, o.Chars)
	if !v.Binary() {
		if v.Text, err = a.text(c.Context(), o, v.From, v.To); err != nil {
			return err
		}
	}
	return a.show(c, http.StatusOK, v)
}
