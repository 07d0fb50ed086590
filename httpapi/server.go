package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
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

// Serve begins to serve the API, to at most maxConns connections at the same
// time: further ones wait.
func Serve(api *API, listener net.Listener, maxConns int) *Server {
	s := &Server{api: api, listener: listener, served: make(chan error, 1)}
	errorLog, _ := zap.NewStdLogAt(api.cfg.Log, zap.DebugLevel) // only what clients did to their connections
	s.http = &http.Server{
		Handler: api.Handler(), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, ErrorLog: errorLog,
	}
	go func() { s.served <- s.http.Serve(newBounded(listener, maxConns)) }()
	return s
}

// Address is where it listens, host:port.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Drain ends streams and waits, and says that the process is not ready.
func (s *Server) Drain() { s.api.Drain() }

// Close stops: requests that run may end until ctx does, and are cut off then.
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

// bounded is a listener that has at most so many connections open.
type bounded struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newBounded(l net.Listener, n int) *bounded {
	return &bounded{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	conn, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &boundedConn{Conn: conn, release: sync.OnceFunc(func() { <-b.slots })}, nil
}

func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
