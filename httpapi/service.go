package httpapi

import (
	"context"
	_ "embed"
	"net/http"
	"sync"
	"time"

	"turnkeeper/httpapi/internal/request"
)

//go:embed openapi.json
var description []byte

// A ServiceStore tells whether the database answers.
type ServiceStore interface {
	Ping(ctx context.Context) error
}

// service serves the state of this process.
type service struct {
	store    ServiceStore
	metrics  http.Handler // nil: there are none
	draining <-chan struct{}
	pings    pings
}

func (s *service) description(c *request.Call) error {
	return c.Content("application/json", description)
}

type health struct {
	Status string `json:"status"`
}

// alive answers as long as the process runs.
func (s *service) alive(c *request.Call) error {
	return c.Answer(http.StatusOK, health{Status: "ok"})
}

// pingTimeout is how long the database may take to answer.
const pingTimeout = 2 * time.Second

func (s *service) ready(c *request.Call) error {
	if isClosed(s.draining) {
		return request.Refuse(http.StatusServiceUnavailable, "this process is stopping")
	}
	if err := s.pings.ask(c.Context(), s.store.Ping); err != nil {
		return request.Refuse(http.StatusServiceUnavailable, "the database does not answer")
	}
	return c.Answer(http.StatusOK, health{Status: "ready"})
}

// prometheus answers the metrics, which are of all agents.
func (s *service) prometheus(c *request.Call) error {
	if !c.Caller.SeesAll() {
		return request.Refuse(http.StatusForbidden, "the metrics are of all agents, and this token is not")
	}
	if s.metrics == nil {
		return request.Refuse(http.StatusNotFound, "this process keeps no metrics")
	}
	s.metrics.ServeHTTP(c.W, c.Request)
	return nil
}

// pings share one ping of the database: anybody may ask for /readyz, and connections are few.
type pings struct {
	mu      sync.Mutex
	running *ping // nil: none
}

type ping struct {
	done chan struct{} // closed when err is set
	err  error
}

// ask pings, or waits for the ping that runs.
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
