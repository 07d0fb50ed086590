package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/storage"
)

// late is a store whose AcceptFrom blocks until its caller is gone.
type late struct{ httpapi.Store }

func (late) AcceptFrom(ctx context.Context, _ storage.Sender,
	_ turnkeeper.Submission) (turnkeeper.MessageID, bool, error) {
	<-ctx.Done()
	return 0, false, context.Cause(ctx)
}

// TestAClientThatEndsItsSideIsToldNothingFalse checks that a client that closes its sending side counts as
// disconnected, and never reads that a message was accepted if it was not.
func TestAClientThatEndsItsSideIsToldNothingFalse(t *testing.T) {
	told := make(chan int, 1)
	h := newEnv(t, func(c *httpapi.Config) {
		c.Store = late{c.Store}
		c.Observe = func(_, _ string, status int, _ time.Duration) { told <- status }
	})
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(h.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const body = `{"agent":"clerk","body":"hello"}`
	if _, err = fmt.Fprintf(conn,
		"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err == nil {
		err = conn.(*net.TCPConn).CloseWrite()
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(time.Minute))
	}
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		_ = resp.Body.Close()
		t.Errorf("a message that was not accepted was answered %s", resp.Status)
	}
	if status := <-told; status != 499 {
		t.Errorf("it is told that the answer was %d", status)
	}
}
