package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// A TurnStore reads for the routes of turns and outputs what access does not.
type TurnStore interface {
	FindTurns(ctx context.Context, f operate.Search) (found []waiting.Turn, next int64, err error)
	Output(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error)
}

// turns serves turns and outputs; events serves their events.
type turns struct {
	store  TurnStore
	access access.Access
}

func (t *turns) list(c *request.Call) error {
	f, err := c.Search(request.TurnStates...)
	if err != nil {
		return err
	}
	found, next, err := t.store.FindTurns(c.Context(), f)
	if err != nil {
		return err
	}
	access.ScreenTurns(c, found)
	return c.Respond(http.StatusOK, listOf(found, views.OfTurn, next))
}

func (t *turns) get(c *request.Call) error {
	v, err := t.access.Turn(c)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, views.OfWholeTurn(v))
}

// cancel answers 200 if the turn is closed, and 202 if its worker was asked to close it.
func (t *turns) cancel(c *request.Call) error {
	id, err := request.ID[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	return endWith(c, func(reason string) (operate.Ended, error) {
		return t.access.CancelTurn(c, id, reason)
	}, views.OfCancelled)
}

// finish answers 200 if the turn has finished as requested before, and 202 if it will.
func (t *turns) finish(c *request.Call) error {
	id, err := request.ID[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	return endWith(c, func(reason string) (operate.Ended, error) {
		return t.access.FinishTurn(c, id, reason)
	}, views.OfFinished)
}

// A cancellation is the body of a request to end a turn.
type cancellation struct {
	Reason string `json:"reason,omitempty" schema:"maxLength=1000" doc:"shown to operators"`
}

// endWith reads the reason, calls end, and answers with a view of its result.
func endWith[View any](c *request.Call, end func(reason string) (operate.Ended, error),
	view func(operate.Ended) View) error {
	var body cancellation
	if err := c.ReadOptional(&body); err != nil {
		return err
	}
	if len(body.Reason) > request.MaxReason {
		return request.Refuse(http.StatusUnprocessableEntity, "the reason has %d bytes, the limit is %d",
			len(body.Reason), request.MaxReason)
	}
	done, err := end(body.Reason)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if done.Closed {
		status = http.StatusOK
	}
	return c.Respond(status, view(done))
}

// A retryBody is the body of POST /v1/turns/{id}/retry.
type retryBody struct {
	Anyway bool `json:"anyway,omitempty" schema:"default=false" doc:"retry even if effects may happen twice: after a degraded turn, or one cancelled after it had begun"`
}

// retry retries the message of a turn. It answers 201 if that made a new message, and 200 if the same
// message is due now or was already retried.
func (t *turns) retry(c *request.Call) error {
	id, err := request.ID[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	var body retryBody
	if err := c.ReadOptional(&body); err != nil {
		return err
	}
	done, of, err := t.access.RetryTurn(c, id, body.Anyway)
	if errors.Is(err, operate.ErrMayRepeatEffects) {
		return request.Refuse(http.StatusConflict, `%s; send {"anyway": true} if that does no harm`, err)
	}
	if err != nil {
		return err
	}
	c.W.Header().Set("Location", messagePath(done.Message))
	if done.DueNow || done.Repeat {
		return c.Respond(http.StatusOK, views.OfRetried(of, done))
	}
	return c.Respond(http.StatusCreated, views.OfRetried(of, done))
}

// output serves a stored result as plain text or bytes, which no browser executes.
func (t *turns) output(c *request.Call) error {
	o, err := t.access.Output(c)
	if err != nil {
		return err
	}
	if !o.ExpiredAt.IsZero() {
		return request.Refuse(http.StatusGone, "%s", words.ExpiredOutput(o, func(at time.Time) string {
			return at.UTC().Format(time.RFC3339)
		}))
	}
	if o.Bytes != nil {
		return t.outputBytes(c, o.ID)
	}
	from, to, err := span(c, o.Chars)
	if err != nil {
		return err
	}
	if from > to {
		return request.Refuse(http.StatusBadRequest, "from is after to")
	}
	text, err := t.access.OutputText(c.Context(), o, from, to)
	if err != nil {
		return err
	}
	return c.Content("text/plain; charset=utf-8", []byte(text))
}

func (t *turns) outputBytes(c *request.Call, id turnkeeper.OutputID) error {
	o, err := t.store.Output(c.Context(), id)
	if err != nil {
		return err
	}
	size := int64(len(o.Bytes))
	from, to, err := span(c, size)
	if err != nil {
		return err
	}
	from, to = min(from, size), min(to, size)
	if from > to {
		return request.Refuse(http.StatusBadRequest, "from is after to")
	}
	c.W.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", "output.bin"))
	return c.Content("application/octet-stream", o.Bytes[from:to])
}

// span reads the parameters from (default 0) and to (default size).
func span(c *request.Call, size int64) (from, to int64, err error) {
	if from, err = c.Number("from", 0); err != nil {
		return 0, 0, err
	}
	to, err = c.Number("to", size)
	return from, to, err
}
