package page

import (
	"net/http"
	"time"

	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/storage/operate"
)

func (h *Handler) showTurn(c *request.Call) (err error) {
	v := Turn{Now: time.Now()}
	if v.TurnView, err = h.access.Turn(c); err != nil {
		return err
	}
	if v.Attempts, err = h.cfg.Store.TurnsOf(c.Context(), v.Message.ID); err != nil {
		return err
	}
	if v.As, v.Of, err = h.cfg.Store.RetriesOf(c.Context(), v.Message.ID); err != nil {
		return err
	}
	if v.Asks, err = h.access.ListAsks(c, operate.AskFilter{Turn: v.Turn.ID}); err != nil {
		return err
	}
	return h.show(c, http.StatusOK, v)
}

func (h *Handler) showMessage(c *request.Call) error {
	m, err := h.access.Message(c)
	if err != nil {
		return err
	}
	var v Message
	if v.Message, v.Reply, err = h.access.Answered(c.Context(), m.ID); err != nil {
		return err
	}
	if v.Turns, err = h.cfg.Store.TurnsOf(c.Context(), m.ID); err != nil {
		return err
	}
	access.Screen(c, &v.Message)
	if v.As, v.Of, err = h.cfg.Store.RetriesOf(c.Context(), m.ID); err != nil {
		return err
	}
	return h.show(c, http.StatusOK, v)
}

// outputStep is the number of characters of an output that a page shows.
const outputStep = 20_000

func (h *Handler) showOutput(c *request.Call) error {
	o, err := h.access.Output(c)
	if err != nil {
		return err
	}
	v := Output{Output: o, Step: outputStep}
	if v.From, err = c.Number("from", 0); err != nil {
		return err
	}
	v.From = min(v.From, o.Chars)
	v.To = min(v.From+outputStep, o.Chars)
	if !v.Binary() && o.ExpiredAt.IsZero() {
		if v.Text, err = h.access.OutputText(c.Context(), o, v.From, v.To); err != nil {
			return err
		}
	}
	return h.show(c, http.StatusOK, v)
}
