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

// Bounds of a connection. There is none on the time of a whole answer: a stream
// lasts as long as its turn, and each of its pieces has its own.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 32 << 10
)

// Listen listens on an address, host:port; port 0 is any that is free.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

// Serve begins to serve the API, to at most maxConns connections at the same time: a further
// one takes the place of the one that has been idle for longest. Where all of them have requests in
// progress, there are a few more, for probes.
func Serve(api *API, listener net.Listener, maxConns int) *Server {
	s := &Server{api: api, listener: listener, served: make(chan error, 1)}
	conns := newConnections(listener, maxConns)
	errorLog, _ := zap.NewStdLogAt(api.cfg.Log, zap.DebugLevel) // only what clients did to their connections
	s.http = &http.Server{
		Handler: conns.handler(api.Handler()), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, ErrorLog: errorLog,
		ConnState: conns.state, ConnContext: conns.context,
	}
	go func() { s.served <- s.http.Serve(conns) }()
	return s
}

// Address returns where it listens, host:port.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Drain ends streams and waits, and makes the process not ready.
func (s *Server) Drain() { s.api.Drain() }

// Close stops the server: requests in progress may end until ctx does, and are then aborted.
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
