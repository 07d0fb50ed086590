package telemetry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// A Server serves /metrics at a separate address, for processes without the API.
type Server struct {
	http   *http.Server
	served chan error
}

// Serve starts to serve the metrics.
func (t *Telemetry) Serve(listener net.Listener, log *zap.Logger) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.handler)
	errorLog, _ := zap.NewStdLogAt(log, zap.DebugLevel) // only errors of clients' connections
	s := &Server{served: make(chan error, 1), http: &http.Server{
		Handler: mux, ReadTimeout: scrapeTime, WriteTimeout: 2 * scrapeTime, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10, ErrorLog: errorLog,
	}}
	go func() { s.served <- s.http.Serve(listener) }()
	return s
}

// Close stops the server, and closes open connections when ctx ends.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
