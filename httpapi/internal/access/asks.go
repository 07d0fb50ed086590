package access

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/askform"
	"turnkeeper/storage/operate"
)

// An AskStore reads and answers asks.
type AskStore interface {
	ListAsks(ctx context.Context, f operate.AskFilter) ([]operate.Ask, error)
	Ask(ctx context.Context, id asks.ID) (operate.Ask, error)
	AnswerAsk(ctx context.Context, id asks.ID, a asks.Answer) (asks.State, error)
	AskSender(ctx context.Context, id asks.ID) (token int64, err error)
	CountOpenAsks(ctx context.Context, agents []string, limit int) (int, error)
}

// Ask reads the ask whose id is in the path.
func (a Access) Ask(c *request.Call) (operate.Ask, error) {
	id, err := request.ID[asks.ID](c, "ask")
	if err != nil {
		return operate.Ask{}, err
	}
	ask, err := a.store.Ask(c.Context(), id)
	if err != nil && !errors.Is(err, turnkeeper.ErrNotFound) {
		return operate.Ask{}, err
	}
	if err != nil || !c.Caller.SeesWords(turnkeeper.ConversationKey{Agent: ask.Agent, User: ask.User,
		Name: ask.Conversation}) {
		return operate.Ask{}, request.Refuse(http.StatusNotFound, "there is no ask %d", id)
	}
	return visible(c, ask), nil
}

// ListAsks lists asks. The filter names an agent that the caller sees, or the caller sees all.
func (a Access) ListAsks(c *request.Call, f operate.AskFilter) ([]operate.Ask, error) {
	found, err := a.store.ListAsks(c.Context(), f)
	for i := range found {
		found[i] = visible(c, found[i])
	}
	return found, err
}

// visible returns an ask. It hides the turns of its tree that the caller must not see, but keeps their number.
func visible(c *request.Call, ask operate.Ask) operate.Ask {
	for i, step := range ask.Path {
		if !c.Caller.Sees(step.Agent) {
			ask.Path[i] = operate.AskStep{}
		}
	}
	return ask
}

// OpenAsks counts the open asks that the caller sees, up to most.
func (a Access) OpenAsks(c *request.Call, limit int) (int, error) {
	var agents []string
	if !c.Caller.SeesAll() {
		agents = c.Caller.Token.Agents
	}
	return a.store.CountOpenAsks(c.Context(), agents, limit)
}

// AnswerAsk answers the ask of the path. It records the name of the caller's token, or answer.By without a token. It
// validates the JSON of answer.Answer and answer.Edited, and returns the ask with its answer.
func (a Access) AnswerAsk(c *request.Call, answer asks.Answer) (operate.Ask, error) {
	ask, err := a.Ask(c)
	if err != nil {
		return ask, err
	}
	if err := a.nameAnswerer(c, &answer); err != nil {
		return ask, err
	}
	if err := a.mayAnswer(c, ask, answer.By); err != nil {
		return ask, err
	}
	if err := ask.Kind.Check(answer.Decision); err != nil {
		return ask, err
	}
	switch {
	case answer.Hash == "":
		return ask, request.Refuse(http.StatusBadRequest,
			"hash is required: send the hash of the ask that the person saw")
	case answer.Hash != ask.Hash:
		return ask, request.Refuse(http.StatusConflict,
			"the hash is not that of ask %d: read the ask again before you answer", ask.ID)
	}
	if answer.Answer != "" {
		if answer.Answer, err = askform.Answer(ask.Schema, answer.Answer); err != nil {
			return ask, request.Refuse(http.StatusBadRequest, "the answer is invalid: %s", err)
		}
	}
	if answer.Edited != "" {
		if answer.Edited, err = askform.Arguments(ask.Schema, answer.Edited); err != nil {
			return ask, request.Refuse(http.StatusBadRequest, "the arguments are invalid: %s", err)
		}
		if unchanged, _ := askform.Arguments(ask.Schema, ask.Arguments); unchanged == answer.Edited {
			answer.Edited = ""
		}
	}
	if _, err := a.store.AnswerAsk(c.Context(), ask.ID, answer); err != nil {
		return ask, err
	}
	return a.Ask(c)
}

// nameAnswerer sets answer.By.
func (a Access) nameAnswerer(c *request.Call, answer *asks.Answer) error {
	switch {
	case c.Caller.Token == nil && a.fourEyes:
		return request.Refuse(http.StatusForbidden, "four_eyes is on: answer with a token that has the scope answer")
	case c.Caller.Token == nil && strings.TrimSpace(answer.By) == "":
		return request.Refuse(http.StatusBadRequest,
			"answered_by is required without a token: send the name of the person who answers")
	case c.Caller.Token != nil && answer.By != "" && answer.By != c.Caller.Token.Name:
		return request.Refuse(http.StatusBadRequest, "omit answered_by: with a token, the token's name is recorded")
	case c.Caller.Token != nil:
		answer.By = c.Caller.Token.Name
	}
	return nil
}

// mayAnswer refuses people outside the ask's audience and, with four_eyes, the sender of the message that led to it.
func (a Access) mayAnswer(c *request.Call, ask operate.Ask, by string) error {
	if len(ask.Audience) > 0 && !slices.Contains(ask.Audience, by) {
		return request.Refuse(http.StatusForbidden, "the ask is for %s, not for %.200s",
			strings.Join(ask.Audience, ", "), by)
	}
	if !a.fourEyes {
		return nil
	}
	sender, err := a.store.AskSender(c.Context(), ask.ID)
	if err != nil {
		return err
	}
	if sender == c.Caller.TokenID() {
		return request.Refuse(http.StatusForbidden,
			"this token sent the message that led to the ask: with four_eyes, somebody else must answer it")
	}
	return nil
}
