package httpapi

import (
	"context"
	_ "embed"
	"net/http"
	"time"
)

//go:embed openapi.json
var description []byte

func (a *API) getDescription(c *call) error { return c.content("application/json", description) }

type healthView struct {
	Status string `json:"status"`
}

// getHealth says that the process answers, and nothing else.
func (a *API) getHealth(c *call) error {
	return c.answer(http.StatusOK, healthView{Status: "ok"})
}

// pingTime is what the database may take to count as there.
const pingTime = 2 * time.Second

func (a *API) getReadiness(c *call) error {
	if a.isDraining() {
		return refusal(http.StatusServiceUnavailable, "this process is stopping")
	}
	ctx, cancel := context.WithTimeout(c.Context(), pingTime)
	defer cancel()
	if err := a.cfg.Store.Ping(ctx); err != nil {
		return refusal(http.StatusServiceUnavailable, "the database does not answer")
	}
	return c.answer(http.StatusOK, healthView{Status: "ready"})
}
