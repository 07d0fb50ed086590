package httpapi

import (
	"net/http"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func (a *API) listModelHealth(c *call) error {
	all, err := a.modelsFor(c)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, listOf(all, views.OfModel, 0))
}

// modelsFor are the models that the agents ask whom the caller sees.
func (a *API) modelsFor(c *call) ([]turnkeeper.ModelHealth, error) {
	all, err := a.cfg.Store.Models(c.Context())
	if err != nil || c.caller.seesAll() {
		return all, err
	}
	for i := range all {
		all[i].Agents = slices.DeleteFunc(all[i].Agents, func(agent string) bool { return !c.caller.sees(agent) })
	}
	return slices.DeleteFunc(all, func(h turnkeeper.ModelHealth) bool { return len(h.Agents) == 0 }), nil
}

// retryMessages puts all messages that failed for good into the inbox again.
func (a *API) retryMessages(c *call) error {
	var body struct {
		State      string `json:"state"`
		Since      string `json:"since"`
		Agent      string `json:"agent"`
		ErrorClass string `json:"error_class"`
	}
	if err := c.read(aroundBody, &body); err != nil {
		return err
	}
	if body.State != string(turnkeeper.MessageFailed) {
		return refusal(http.StatusUnprocessableEntity, `state is %q: only "failed" messages are tried again all at once`, body.State)
	}
	scope := operate.FailedScope{ErrorClass: body.ErrorClass}
	if body.Since != "" {
		span, err := strictyaml.ParseDuration(body.Since)
		if err != nil || span < 0 {
			return refusal(http.StatusUnprocessableEntity, "since is %q: it must be a duration such as 90m", body.Since)
		}
		scope.Since = time.Now().Add(-span)
	}
	if body.Agent != "" {
		scope.Agents = []string{body.Agent}
	}
	all, err := a.retryFailed(c, scope)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, views.OfBulkRetried(all))
}

// retryFailed is RetryFailed for the agents that the caller sees.
func (a *API) retryFailed(c *call, scope operate.FailedScope) ([]operate.BulkRetried, error) {
	for _, agent := range scope.Agents {
		if !c.caller.sees(agent) {
			return nil, turnkeeper.ErrNotFound
		}
	}
	if len(scope.Agents) == 0 && !c.caller.seesAll() {
		scope.Agents = c.caller.token.Agents
	}
	return a.cfg.Store.RetryFailed(c.Context(), scope)
}

// formRetryFailed is the page's way to it.
func (a *API) formRetryFailed(c *call) error {
	if err := c.form(); err != nil {
		return err
	}
	if _, err := a.retryFailed(c, operate.FailedScope{}); err != nil {
		return err
	}
	return c.goTo("/inbox?state=waiting")
}
