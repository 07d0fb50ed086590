package access

import (
	"net/http"
	"slices"
	"strings"

	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/survival"
	"turnkeeper/storage/operate"
)

// Levels lists the survival levels of the agents visible to the caller. A caller who does not see all agents does not
// see who pinned the level of all.
func (a Access) Levels(c *request.Call) (operate.Levels, error) {
	all, err := a.store.Levels(c.Context())
	if !c.Caller.SeesAll() {
		all = all.For(c.Caller.Sees)
	}
	return all, err
}

// PinLevel pins a survival level in the caller's name. The token's name is recorded.
func (a Access) PinLevel(c *request.Call, p operate.Pin) error {
	if err := a.checkLevel(c, p.Agent); err != nil {
		return err
	}
	p.By, p.Reason = strings.TrimSpace(p.By), strings.TrimSpace(p.Reason)
	switch {
	case !slices.Contains(survival.Levels, p.Level):
		return request.Refuse(http.StatusUnprocessableEntity, "level must be one of %s",
			strings.Join(survival.Names(), ", "))
	case p.For < 0 || p.For > survival.MaxPin:
		return request.Refuse(http.StatusUnprocessableEntity,
			"a pin lasts at most %d days (for_seconds 0 to %d); 0 is until it is unpinned",
			int(survival.MaxPin.Hours()/24), int(survival.MaxPin.Seconds()))
	case len(p.Reason) > request.MaxReason || len(p.By) > request.MaxReason || !request.IsText(p.Reason) ||
		!request.IsText(p.By):
		return request.Refuse(http.StatusUnprocessableEntity, "reason and by must be texts of at most %d bytes",
			request.MaxReason)
	}
	switch {
	case c.Caller.Token != nil:
		p.By = c.Caller.Token.Name
	case p.By == "":
		p.By = "operator"
	}
	return a.store.PinLevel(c.Context(), p)
}

// UnpinLevel ends a pin.
func (a Access) UnpinLevel(c *request.Call, agent string) error {
	if err := a.checkLevel(c, agent); err != nil {
		return err
	}
	return a.store.UnpinLevel(c.Context(), agent)
}

// checkLevel refuses a change of the level of an agent that the caller does not see, or of all.
func (a Access) checkLevel(c *request.Call, agent string) error {
	if agent == "" {
		if c.Caller.SeesAll() {
			return nil
		}
		return request.Refuse(http.StatusForbidden,
			"without agent, the level of all agents is set: use a token that is not restricted to some")
	}
	_, err := a.agent(c, agent)
	return err
}
