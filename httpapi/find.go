package httpapi

import (
	"net/http"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// maxWords bounds the text that is searched for, in bytes.
const maxWords = 1000

// search reads what a list of messages or turns is asked for.
func (c *call) search(states ...string) (operate.Search, error) {
	p, err := c.page("cursor", states...)
	if err != nil {
		return operate.Search{}, err
	}
	query := c.URL.Query()
	f := operate.Search{Page: p, Conversation: query.Get("conversation"), Words: strings.TrimSpace(query.Get("text")), ErrorClass: query.Get("error_class")}
	switch {
	case f.Conversation != "" && f.Agent == "":
		return f, refusal(http.StatusBadRequest, "conversation wants agent too: conversations of several agents may have the same name")
	case len(f.Words) > maxWords:
		return f, refusal(http.StatusBadRequest, "text has %d bytes, the limit is %d", len(f.Words), maxWords)
	}
	if f.Since, err = c.moment("since"); err != nil {
		return f, err
	}
	f.Until, err = c.moment("until")
	return f, err
}

// moment is a time of the query; zero: none is given.
func (c *call) moment(name string) (time.Time, error) {
	text := strings.ReplaceAll(c.URL.Query().Get(name), " ", "+") // the plus of an offset that was not escaped
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil && t.Year() > 0 {
			return t, nil
		}
	}
	return time.Time{}, refusal(http.StatusBadRequest, "%s must be a time such as 2026-02-28T07:30:00Z, or a date; without an offset it is UTC", name)
}

func (a *API) listMessages(c *call) error {
	f, err := c.search(messageStates...)
	if err != nil {
		return err
	}
	messages, next, err := a.cfg.Store.FindMessages(c.Context(), f)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, listOf(messages, views.OfMessage, next))
}

func (a *API) listTurns(c *call) error {
	f, err := c.search(turnStates...)
	if err != nil {
		return err
	}
	turns, next, err := a.cfg.Store.FindTurns(c.Context(), f)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, listOf(turns, views.OfTurn, next))
}

// conversation is which one a transcript is asked for.
func (c *call) conversation() (operate.Page, string, error) {
	p, err := c.page("cursor")
	conversation := c.URL.Query().Get("conversation")
	if err == nil && (p.Agent == "" || conversation == "") {
		err = refusal(http.StatusBadRequest, "a transcript is of one conversation: name it by agent=NAME and conversation=NAME")
	}
	return p, conversation, err
}

func (a *API) getTranscript(c *call) error {
	p, conversation, err := c.conversation()
	if err != nil {
		return err
	}
	exchanges, next, err := a.cfg.Store.Transcript(c.Context(), p, conversation)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, listOf(exchanges, views.OfExchange, next))
}

// listWorkers lists processes that run the turns of all agents, and so wants a token for all.
func (a *API) listWorkers(c *call) error {
	if !c.caller.seesAll() {
		return refusal(http.StatusForbidden, "workers are for all agents, and this token is not")
	}
	workers, err := a.cfg.Store.Workers(c.Context())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, listOf(workers, views.OfWorker, 0))
}

var messageStates = []string{
	string(turnkeeper.MessageWaiting), string(turnkeeper.MessageRunning), string(turnkeeper.MessageAnswered),
	string(turnkeeper.MessageFailed), string(turnkeeper.MessageCancelled),
}
