package telemetry_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// once is a listener with one connection.
type once struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (o once) Accept() (net.Conn, error) {
	select {
	case conn := <-o.conns:
		return conn, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}

func (o once) Close() error { close(o.closed); return nil }
func (once) Addr() net.Addr { return &net.TCPAddr{} }

func TestABodyThatDoesNotComeToTheMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told, err := start(t, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		o := once{make(chan net.Conn), make(chan struct{})}
		server := told.Serve(o, zap.NewNop())
		client, end := net.Pipe()
		o.conns <- end
		go func() {
			_, _ = io.WriteString(client, "GET /no HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
		}()
		began := time.Now()
		answer, err := io.ReadAll(client)
		if took := time.Since(began); err != nil || took > 10*time.Second || !strings.HasPrefix(string(answer), "HTTP/1.1 404") {
			t.Errorf("after %s: %q, %v", took, answer, err)
		}
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
