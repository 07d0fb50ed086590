package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// A Server serves an API on one address.
type Server struct {
	api      *API
	listener net.Listener
	http     *http.Server
	served   chan error
}

// Limits of a connection. The server sets no write timeout: a stream lasts as long as its turn, and
// each of its writes has a deadline.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 32 << 10
)

// Listen listens on a TCP address, host:port; port 0 chooses a free port.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

// Serve starts serving the API in the background, on at most maxConns connections: a further one
// replaces the connection that has been idle longest. While all of them have requests in progress, 16
// more are accepted, for probes.
func Serve(api *API, listener net.Listener, maxConns int) *Server {
	s := &Server{api: api, listener: listener, served: make(chan error, 1)}
	conns := newConnections(listener, maxConns)
	errorLog, _ := zap.NewStdLogAt(api.cfg.Log, zap.DebugLevel) // net/http logs faults of clients here
	s.http = &http.Server{
		Handler: conns.handler(api.Handler()), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: errorLog,
		ConnState: conns.state, ConnContext: conns.context,
	}
	go func() { s.served <- s.http.Serve(conns) }()
	return s
}

// Address returns the listener's address, host:port.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Drain calls API.Drain.
func (s *Server) Drain() { s.api.Drain() }

// Close drains and stops the server. Requests in progress may finish until ctx ends, and are then aborted.
func (s *Server) Close(ctx context.Context) error {
	s.Drain()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
