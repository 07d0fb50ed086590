package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnkeeper/storage/operate"
)

// maxWait bounds ?wait=.
const maxWait = time.Minute

func waitOf(c *call) (time.Duration, error) {
	text := c.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > maxWait {
		return 0, refusal(http.StatusBadRequest, "wait must be a duration from 0s to %s, such as 30s", "60s")
	}
	return wait, nil
}

// idOf is the id in the path.
func idOf[ID ~int64](c *call, noun string) (ID, error) {
	id, err := strconv.ParseInt(c.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, refusal(http.StatusNotFound, "there is no %s %.40q", noun, c.PathValue("id"))
	}
	return ID(id), nil
}

// number is a whole number of the query, not negative.
func (c *call) number(name string, byDefault int64) (int64, error) {
	text := c.URL.Query().Get(name)
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, refusal(http.StatusBadRequest, "%s must be a whole number from 0", name)
	}
	return n, nil
}

// flag reads true or false.
func (c *call) flag(name string, byDefault bool) (bool, error) {
	switch c.URL.Query().Get(name) {
	case "":
		return byDefault, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, refusal(http.StatusBadRequest, "%s must be true or false", name)
}

const (
	defaultLimit = 25
	maxLimit     = 100
)

// page reads what a list is asked for. cursor is the name of its parameter.
func (c *call) page(cursor string, states ...string) (operate.Page, error) {
	limit, err := c.number("limit", defaultLimit)
	if err != nil || limit < 1 || limit > maxLimit {
		return operate.Page{}, refusal(http.StatusBadRequest, "limit must be 1 to %d", maxLimit)
	}
	p := operate.Page{Limit: int(limit), State: c.URL.Query().Get("state")}
	if p.State != "" && !slices.Contains(states, p.State) {
		return p, refusal(http.StatusBadRequest, "state must be one of %s", strings.Join(states, ", "))
	}
	if cursor != "" {
		if p.Cursor, err = c.number(cursor, 0); err != nil {
			return p, err
		}
	}
	p.Agent, err = c.agent()
	return p, err
}

// agent is the one that a list is asked for; empty: all.
func (c *call) agent() (string, error) {
	agent := c.URL.Query().Get("agent")
	switch {
	case agent == "" && !c.caller.seesAll() && len(c.caller.token.Agents) == 1:
		return c.caller.token.Agents[0], nil
	case agent == "" && !c.caller.seesAll():
		return "", refusal(http.StatusBadRequest, "this token is for several agents: name one of them by agent=NAME")
	case agent != "" && !c.caller.sees(agent):
		return "", refusal(http.StatusForbidden, "this token is not for the agent %q", agent)
	default:
		return agent, nil
	}
}
