package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// channelHTTP is the channel of answers over the API.
const channelHTTP = "http"

// asking serves asks.
type asking struct{ access access.Access }

func (a asking) list(c *request.Call) error {
	page, err := c.Page("cursor", request.AskStates...)
	if err != nil {
		return err
	}
	turn, err := c.Number("turn", 0)
	if err != nil {
		return err
	}
	found, err := a.access.ListAsks(c, operate.AskFilter{
		State: asks.State(page.State), Agent: page.Agent, User: page.User, Turn: turnkeeper.TurnID(turn),
		Before: asks.ID(page.Cursor), Limit: page.Limit,
	})
	if err != nil {
		return err
	}
	next := int64(0)
	if len(found) == page.Limit {
		next = int64(found[len(found)-1].ID)
	}
	return c.Respond(http.StatusOK, listOf(found, views.OfAsk, next))
}

func (a asking) get(c *request.Call) error {
	ask, err := a.access.Ask(c)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, views.OfAsk(ask))
}

// An askAnswer is the body of POST /v1/asks/{id}/answer.
type askAnswer struct {
	Decision   string          `json:"decision" schema:"enum=approved|denied|answered" doc:"approved: run the call, or let the turn go on; denied; answered: with an answer, for the kinds question, input and settle"`
	Hash       string          `json:"hash" doc:"hash of the ask that the person saw"`
	Comment    string          `json:"comment,omitempty" schema:"maxLength=4000" doc:"for the model"`
	Answer     json.RawMessage `json:"answer,omitempty" doc:"with answered: a value that matches the ask's schema"`
	Arguments  json.RawMessage `json:"arguments,omitempty" doc:"with approved: run the call with these arguments instead; an object that matches the ask's schema"`
	AnsweredBy string          `json:"answered_by,omitempty" doc:"who answers; required without a token. With a token, omit it: the token's name is recorded"`
}

// maxEdited is the maximum length of edited arguments, as in the database.
const maxEdited = 256 << 10

// answer answers an ask. A repeat of the same answer by the same person changes nothing.
func (a asking) answer(c *request.Call) error {
	var body askAnswer
	if err := c.Read(asks.MaxAnswer+maxEdited+asks.MaxComment*request.BytesPerEscape+request.BodyOverhead,
		&body); err != nil {
		return err
	}
	ask, err := a.access.AnswerAsk(c, asks.Answer{
		Decision: asks.State(body.Decision), By: body.AnsweredBy, Channel: channelHTTP, Comment: body.Comment,
		Answer: given(body.Answer), Edited: string(body.Arguments), Hash: body.Hash,
	})
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, views.OfAsk(ask))
}

// given returns a JSON value, or "" if it is missing or null.
func given(value json.RawMessage) string {
	if bytes.Equal(bytes.TrimSpace(value), []byte("null")) {
		return ""
	}
	return string(value)
}
