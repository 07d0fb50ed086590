package telemetry_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"turnkeeper/telemetry"
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
		if took := time.Since(began); err != nil || took > 10*time.Second || !strings.HasPrefix(string(answer),
			"HTTP/1.1 404") {
			t.Errorf("after %s: %q, %v", took, answer, err)
		}
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestReadsAtOnce checks that four reads of the metrics run at the same time, and others are refused at once.
func TestReadsAtOnce(t *testing.T) {
	t.Parallel()
	told, err := start(t, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	const most = 4
	begun, goOn := make(chan bool), make(chan bool)
	if err := told.Watch(telemetry.Sources{Leases: func() int {
		begun <- true
		<-goOn
		return 0
	}}); err != nil {
		t.Fatal(err)
	}
	const refused = 16
	answers := make(chan int, most+refused)
	for range most + refused {
		go func() {
			w := httptest.NewRecorder()
			told.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			answers <- w.Code
		}()
	}
	for range refused {
		if code := <-answers; code != http.StatusServiceUnavailable {
			t.Fatalf("answered %d while four reads run", code)
		}
	}
	for range most {
		<-begun
		goOn <- true
		if code := <-answers; code != http.StatusOK {
			t.Errorf("a read was answered %d", code)
		}
	}
}

// TestCloseEndsInTime checks that a receiver that hangs delays the end by five seconds.
func TestCloseEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := record(t, false)
		telemetry.Hang(told)
		began := time.Now()
		err := told.Close(context.Background())
		if took := time.Since(began); took != 5*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
