package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper/httpapi"
)

// A doorway is a listener whose connections are pipes, so that a bubble of synctest has their time.
type doorway struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (d *doorway) Accept() (net.Conn, error) {
	select {
	case conn := <-d.conns:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *doorway) Close() error { close(d.closed); return nil }

func (*doorway) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// TestHowLongAClientMayBeSilent checks how long a connection lasts whose client sends no header, half of one, no body,
// half of one, or no further request.
func TestHowLongAClientMayBeSilent(t *testing.T) {
	t.Parallel()
	const head = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
	for _, c := range []struct {
		name, sends string
		lasts       time.Duration
		status      int // of the answer; 0: none
	}{
		{"nothing", "", 10 * time.Second, 0},
		{"half a header", "GET /v1/turns HTTP/1.1\r\nHost: loc", 10 * time.Second, 0},
		{"no body", head + "\r\n", 30 * time.Second, http.StatusBadRequest},
		{"half a body", head + "\r\n{\"agent\":", 30 * time.Second, http.StatusBadRequest},
		{"one request", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 2 * time.Minute, http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				door := &doorway{conns: make(chan net.Conn), closed: make(chan struct{})}
				s := httpapi.Serve(httpapi.New(httpapi.Config{Store: &standIn{}}), door, 10)
				ours, theirs := net.Pipe()
				door.conns <- theirs
				began := time.Now()
				go func() { _, _ = io.WriteString(ours, c.sends) }()
				answer, _ := io.ReadAll(ours)
				if lasted := time.Since(began).Round(time.Second); lasted != c.lasts {
					t.Errorf("the connection lasted %s, want %s", lasted, c.lasts)
				}
				resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(answer))), nil)
				if (err == nil) != (c.status != 0) || err == nil && resp.StatusCode != c.status {
					t.Errorf("it is answered %q", answer)
				}
				if err == nil {
					_ = resp.Body.Close()
				}
				_ = ours.Close()
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
