package httpapi

import (
	"context"
	_ "embed"
	"net/http"
	"sync"
	"time"

	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/words"
)

//go:embed openapi.json
var description []byte

// A ServiceStore checks that the database answers.
type ServiceStore interface {
	Ping(ctx context.Context) error
}

// service serves probes, metrics and the description of the API.
type service struct {
	store    ServiceStore
	refused  func() []presence.Refusal // what the database refuses this process
	metrics  http.Handler              // nil: no metrics
	draining <-chan struct{}
	pings    pings
}

func (s *service) description(c *request.Call) error {
	return c.Content("application/json", description)
}

type health struct {
	Status string `json:"status"`
}

// alive always answers 200.
func (s *service) alive(c *request.Call) error {
	return c.Respond(http.StatusOK, health{Status: "ok"})
}

// unreadyAfter is how long the database refuses a write of this process before it is not ready: longer than a deadlock
// or a lock that a second attempt finds released.
const unreadyAfter = 5 * time.Second

// pingTimeout is the time the database has to answer a probe.
const pingTimeout = 2 * time.Second

func (s *service) ready(c *request.Call) error {
	if isClosed(s.draining) {
		return request.Refuse(http.StatusServiceUnavailable, "this process is stopping")
	}
	if err := s.pings.ask(c.Context(), s.store.Ping); err != nil {
		return request.Refuse(http.StatusServiceUnavailable, "the database does not answer")
	}
	if refused := s.refused(); len(refused) > 0 && refused[0].For >= unreadyAfter {
		return request.Refuse(http.StatusServiceUnavailable, "the database refuses writes of this process: %s",
			words.Refusing(refused[0].For, refused[0].Attempts, refused[0].SQLState))
	}
	return c.Respond(http.StatusOK, health{Status: "ready"})
}

// prometheus serves the metrics. They cover all agents, so the token must too.
func (s *service) prometheus(c *request.Call) error {
	if !c.Caller.SeesAll() {
		return request.Refuse(http.StatusForbidden,
			"the metrics cover all agents: use a token that is not restricted to some")
	}
	if s.metrics == nil {
		return request.Refuse(http.StatusNotFound, "this process has no metrics")
	}
	s.metrics.ServeHTTP(c.W, c.Request)
	return nil
}

// pings shares one ping of the database among concurrent requests: /readyz needs no token, and connections are few.
type pings struct {
	mu      sync.Mutex
	running *ping // nil: no ping in progress
}

type ping struct {
	done chan struct{} // closed when err is set
	err  error
}

// ask starts a ping, or joins the one in progress, and returns its error.
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
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	one.err = do(ctx)
	p.mu.Lock()
	p.running = nil
	p.mu.Unlock()
	close(one.done)
}
