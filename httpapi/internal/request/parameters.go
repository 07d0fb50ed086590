package request

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/operate"
)

// MaxWait is the maximum of ?wait=.
const MaxWait = time.Minute

// Wait reads ?wait=, the time to wait for a reply; 0 if it is missing.
func (c *Call) Wait() (time.Duration, error) {
	text := c.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > MaxWait {
		return 0, Refuse(http.StatusBadRequest, "wait must be a duration from 0s to %s, such as 30s", "60s")
	}
	return wait, nil
}

// ID reads the id in the path. A malformed id is a 404 problem, like an unknown one.
func ID[T ~int64](c *Call, noun string) (T, error) {
	id, err := strconv.ParseInt(c.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, Refuse(http.StatusNotFound, "there is no %s %.40q", noun, c.PathValue("id"))
	}
	return T(id), nil
}

// Number reads a non-negative integer from the query.
func (c *Call) Number(name string, byDefault int64) (int64, error) {
	text := c.URL.Query().Get(name)
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, Refuse(http.StatusBadRequest, "%s must be an integer of at least 0", name)
	}
	return n, nil
}

// Flag reads true or false from the query.
func (c *Call) Flag(name string, byDefault bool) (bool, error) {
	switch c.URL.Query().Get(name) {
	case "":
		return byDefault, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, Refuse(http.StatusBadRequest, "%s must be true or false", name)
}

// The number of entries in a page of a list.
const (
	DefaultLimit = 25
	MaxLimit     = 100
)

// Page reads the parameters of a list: limit, state, agent, user and the cursor, whose parameter has the
// given name. states lists the allowed states.
func (c *Call) Page(cursor string, states ...string) (operate.Page, error) {
	limit, err := c.Number("limit", DefaultLimit)
	if err != nil || limit < 1 || limit > MaxLimit {
		return operate.Page{}, Refuse(http.StatusBadRequest, "limit must be 1 to %d", MaxLimit)
	}
	p := operate.Page{Limit: int(limit), State: c.URL.Query().Get("state")}
	if p.State != "" && !slices.Contains(states, p.State) {
		return p, Refuse(http.StatusBadRequest, "state must be one of %s", strings.Join(states, ", "))
	}
	if p.Cursor, err = c.Number(cursor, 0); err != nil {
		return p, err
	}
	if p.Agent, err = c.agent(); err != nil {
		return p, err
	}
	p.User, err = c.user()
	return p, err
}

// user returns the query parameter user, or the user that the caller's token is bound to; empty means all.
func (c *Call) user() (string, error) {
	user, own := c.URL.Query().Get("user"), c.Caller.User()
	switch err := (turnkeeper.ConversationKey{User: user}).CheckUser(); {
	case user == "" && c.URL.Query().Has("user") && !c.ForPage && !c.URL.Query().Has("conversation"):
		return "", Refuse(http.StatusBadRequest, "user is empty: leave it out to list all users")
	case err != nil:
		return "", Refuse(http.StatusBadRequest, "%s", err)
	case own != "" && user != "" && user != own:
		return "", Refuse(http.StatusNotFound, "this token sees no user %.200q", user)
	case own != "":
		return own, nil
	default:
		return user, nil
	}
}

// Sender returns the user as whom a message is sent: the one that the caller's token is bound to, or the one named in
// the request.
func (c *Call) Sender(named string) (string, error) {
	switch own := c.Caller.User(); own {
	case "", named:
		return named, nil
	default:
		if named != "" {
			return "", Refuse(http.StatusForbidden,
				"this token is bound to another user than %.200q: leave out user, or name its own", named)
		}
		return own, nil
	}
}

// agent returns the query parameter agent; empty means all agents.
func (c *Call) agent() (string, error) {
	agent := c.URL.Query().Get("agent")
	switch {
	case agent == "" && !c.Caller.SeesAll() && len(c.Caller.Token.Agents) == 1:
		return c.Caller.Token.Agents[0], nil
	case agent == "" && !c.Caller.SeesAll():
		return "", Refuse(http.StatusBadRequest, "this token covers several agents: choose one with agent=NAME")
	case !c.Caller.Sees(agent):
		return "", Refuse(http.StatusForbidden, "this token does not cover the agent %q", agent)
	default:
		return agent, nil
	}
}

// maxWords is the maximum length of a search text, in bytes.
const maxWords = 1000

// Search reads the parameters of a search for messages or turns.
func (c *Call) Search(states ...string) (operate.Search, error) {
	p, err := c.Page("cursor", states...)
	if err != nil {
		return operate.Search{}, err
	}
	query := c.URL.Query()
	f := operate.Search{Page: p, Conversation: query.Get("conversation"), Words: strings.TrimSpace(query.Get("text")),
		ErrorClass: query.Get("error_class")}
	switch {
	case f.Conversation != "" && f.Agent == "":
		return f, Refuse(http.StatusBadRequest,
			"conversation requires agent: several agents may have a conversation of the same name")
	case len(f.Words) > maxWords:
		return f, Refuse(http.StatusBadRequest, "text has %d bytes, the limit is %d", len(f.Words), maxWords)
	}
	if f.Since, err = c.time("since"); err != nil {
		return f, err
	}
	f.Until, err = c.time("until")
	return f, err
}

// time reads a time from the query; the zero time if it is missing.
func (c *Call) time(name string) (time.Time, error) {
	text := strings.ReplaceAll(c.URL.Query().Get(name), " ", "+") // an unescaped + of an offset decodes to a space
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil && t.Year() > 0 {
			return t, nil
		}
	}
	return time.Time{}, Refuse(http.StatusBadRequest,
		"%s must be a time such as 2026-02-28T07:30:00Z, or a date; without an offset it is UTC", name)
}

// Conversation reads the parameters of a transcript.
func (c *Call) Conversation() (operate.Page, string, error) {
	p, err := c.Page("cursor")
	conversation := c.URL.Query().Get("conversation")
	if err == nil && (p.Agent == "" || conversation == "") {
		err = Refuse(http.StatusBadRequest, "a transcript needs agent=NAME and conversation=NAME")
	}
	return p, conversation, err
}

// The states that lists can be filtered by.
var (
	MessageStates = []string{
		string(turnkeeper.MessageWaiting), string(turnkeeper.MessageRunning), string(turnkeeper.MessageSucceeded),
		string(turnkeeper.MessageDegraded),
		string(turnkeeper.MessageFailed), string(turnkeeper.MessageCancelled),
	}
	TurnStates = []string{
		string(turnkeeper.TurnQueued), string(turnkeeper.TurnRunning), string(turnkeeper.TurnWaiting),
		string(turnkeeper.TurnSucceeded),
		string(turnkeeper.TurnDegraded), string(turnkeeper.TurnFailed), string(turnkeeper.TurnCancelled),
	}
)

// AskStates lists the states of asks that lists can be filtered by.
var AskStates = []string{
	string(asks.Open), string(asks.Approved), string(asks.Denied), string(asks.Answered), string(asks.Expired),
	string(asks.Withdrawn),
}

// DeliveryStates lists the states of deliveries that lists can be filtered by.
var DeliveryStates = []string{string(outbox.DeliveryPending), string(outbox.DeliveryDelivered),
	string(outbox.DeliveryDead)}

// IsText reports whether a text can be stored: valid UTF-8 without NUL.
func IsText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
