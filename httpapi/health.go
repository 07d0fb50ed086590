package httpapi

import (
	"context"
	_ "embed"
	"net/http"
	"sync"
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
	if err := a.pings.ask(c.Context(), a.cfg.Store.Ping); err != nil {
		return refusal(http.StatusServiceUnavailable, "the database does not answer")
	}
	return c.answer(http.StatusOK, healthView{Status: "ready"})
}

// pings share what one of them finds: anybody may ask whether the database is there, and the
// connections to it are few.
type pings struct {
	mu      sync.Mutex
	running *ping // nil: none
}

type ping struct {
	done chan struct{} // closed when err is set
	err  error
}

// ask pings, or waits for a ping that is on its way.
func (p *pings) ask(ctx context.Context, do func(context.Context) error) error {
	p.mu.Lock()
	one := p.running
	if one == nil {
		one = &ping{done: make(chan struct{})}
		p.running = one
		go p.run(context.WithoutCancel(ctx), one, do)
	}
	p.mu.Unlock()
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pings) run(ctx context.Context, one *ping, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	one.err = do(ctx)
	p.mu.Lock()
	p.running = nil
	p.mu.Unlock()
	close(one.done)
}
