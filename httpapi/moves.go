package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// cancelTurn answers 200 when the turn is closed, and 202 when its worker has been
// told and will close it.
func (a *API) cancelTurn(c *call) error {
	id, err := idOf[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	return a.cancel(c, func(reason string) (operate.Cancelled, error) {
		if err := a.mayTurn(c, id); err != nil {
			return operate.Cancelled{}, err
		}
		return a.cfg.Store.CancelTurn(c.Context(), id, reason)
	})
}

// cancelMessage cancels a message that waits at once, and else its turn.
func (a *API) cancelMessage(c *call) error {
	return a.cancel(c, func(reason string) (operate.Cancelled, error) {
		m, err := a.mayMessage(c)
		if err != nil {
			return operate.Cancelled{}, err
		}
		return a.cfg.Store.CancelMessage(c.Context(), m.ID, reason)
	})
}

func (a *API) cancel(c *call, cancel func(reason string) (operate.Cancelled, error)) error {
	var body struct {
		Reason string `json:"reason"`
	}
	if err := c.readOptional(&body); err != nil {
		return err
	}
	if len(body.Reason) > maxReason {
		return refusal(http.StatusUnprocessableEntity, "the reason has %d bytes, the limit is %d", len(body.Reason), maxReason)
	}
	done, err := cancel(body.Reason)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if done.Closed {
		status = http.StatusOK
	}
	return c.answer(status, views.OfCancelled(done))
}

// retryTurn tries the message of a turn again: 201 when that is a new message, 200
// when it is the same one or has been put into the inbox again before.
func (a *API) retryTurn(c *call) error {
	id, err := idOf[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	var body struct {
		Anyway bool `json:"anyway"`
	}
	if err := c.readOptional(&body); err != nil {
		return err
	}
	done, of, err := a.retry(c, id, body.Anyway)
	if errors.Is(err, operate.ErrMayRepeatEffects) {
		return refusal(http.StatusConflict, `%s; send {"anyway": true} if that does no harm`, err)
	}
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", fmt.Sprintf("/v1/messages/%d", done.Message))
	if done.DueNow || done.Repeat {
		return c.answer(http.StatusOK, views.OfRetried(of, done))
	}
	return c.answer(http.StatusCreated, views.OfRetried(of, done))
}

// retry tries the message of a turn again, and says which one that is.
func (a *API) retry(c *call, id turnkeeper.TurnID, anyway bool) (done operate.Retried, of turnkeeper.MessageID, err error) {
	if err := a.mayTurn(c, id); err != nil {
		return done, 0, err
	}
	turn, err := a.cfg.Store.ViewTurn(c.Context(), id)
	if err != nil {
		return done, 0, err
	}
	done, err = a.cfg.Store.Retry(c.Context(), turn.Message.ID, anyway)
	return done, turn.Message.ID, err
}

// readOptional is read for a body that need not be there.
func (c *call) readOptional(to any) error {
	if c.ContentLength == 0 {
		return nil
	}
	return c.read(aroundBody, to)
}
