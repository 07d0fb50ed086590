package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"turnkeeper/httpapi"
	"turnkeeper/storage/operate"
)

// slowLists is a store whose SchedulerSettings blocks until answer is closed.
type slowLists struct {
	httpapi.Store
	asked, answer chan struct{}
}

func (s *slowLists) SchedulerSettings(ctx context.Context) (operate.SchedulerSettings, error) {
	select {
	case s.asked <- struct{}{}:
	case <-ctx.Done():
		return operate.SchedulerSettings{}, ctx.Err()
	}
	select {
	case <-s.answer:
	case <-ctx.Done():
	}
	return operate.SchedulerSettings{}, ctx.Err()
}

func (*slowLists) Ping(context.Context) error { return nil }

// A crowd is a set of clients of a server with a low connection limit.
type crowd struct {
	t       *testing.T
	store   *slowLists
	address string
}

// bound is the limit of connections and requests of the server.
const bound = 3

func newCrowd(t *testing.T, over func(net.Listener) net.Listener) *crowd {
	t.Helper()
	t.Parallel()
	c := &crowd{t: t, store: &slowLists{asked: make(chan struct{}), answer: make(chan struct{})}}
	listener, err := httpapi.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = listener.Addr().String()
	if over != nil {
		listener = over(listener)
	}
	s := httpapi.Serve(httpapi.New(httpapi.Config{Store: c.store, Requests: bound}), listener, bound)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// crowdClient is one connection.
type crowdClient struct {
	net.Conn
	t      *testing.T
	answer *bufio.Reader
}

// connect opens a connection and sends text.
func (c *crowd) connect(text string) *crowdClient {
	c.t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(c.t.Context(), "tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // far longer than any step takes
		c.t.Fatal(err)
	}
	client := &crowdClient{conn, c.t, bufio.NewReader(conn)}
	client.send(text)
	return client
}

func (c *crowdClient) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// ask sends a request and expects this status.
func (c *crowdClient) ask(path string, status int) http.Header {
	c.t.Helper()
	c.send(get(path))
	return c.want(status)
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }

func (c *crowdClient) want(status int) http.Header {
	c.t.Helper()
	resp, err := http.ReadResponse(c.answer, nil)
	if err != nil {
		c.t.Fatalf("there is no answer: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		c.t.Errorf("answered %d %s (%v), want %d", resp.StatusCode, body, err, status)
	}
	return resp.Header
}

// gone waits until the server closes the connection without a response.
func (c *crowdClient) gone() {
	c.t.Helper()
	rest, err := io.ReadAll(c.answer)
	if timeout, ok := errors.AsType[net.Error](err); len(rest) > 0 || ok && timeout.Timeout() {
		c.t.Errorf("%q, %v", rest, err)
	}
}

// TestIdleConnectionsGiveWay checks that a new connection replaces the oldest idle one.
func TestIdleConnectionsGiveWay(t *testing.T) {
	const begun = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
	for name, sent := range map[string]string{
		"nothing is sent":              "",
		"half a header":                "GET /healthz HTTP/1.1\r\nHos",
		"a body that does not come":    begun + "Via: proxy\r\n\r\n",
		"a body, to a host not ours":   strings.Replace(begun, "localhost", "other", 1) + "\r\n",
		"between requests":             get("/healthz"),
		"a form that does not come":    "POST /sign-out HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
		"a path that there is not":     get("/none"),
		"a request that is no request": "NONE\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, nil)
			ended := make(chan error, bound)
			for range bound {
				client := c.connect(sent)
				go func() {
					_, err := io.Copy(io.Discard, client.answer)
					ended <- err
				}()
			}
			// A new connection may arrive before the server has read what the earlier ones sent. Keep more clients than
			// the server allows, but at most 64, as a process may have only a thousand open files.
			var come []*crowdClient
			for gone := 0; gone < bound; {
				client := c.connect("")
				client.ask("/healthz", 200)
				if come = append(come, client); len(come) > 64 {
					_ = come[0].Close()
					come = come[1:]
				}
				select {
				case err := <-ended:
					if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
						t.Fatalf("a connection is still there: %v", err)
					}
					gone++
				case <-time.After(20 * time.Millisecond): // a form is waited for until its time is over
				}
			}
		})
	}
}

func TestTheOldestIdleConnectionGivesWay(t *testing.T) {
	c := newCrowd(t, nil)
	first, second, third := c.connect(""), c.connect(""), c.connect("")
	first.ask("/healthz", 200) // is the newest now
	fourth := c.connect("")
	second.gone()
	fifth := c.connect("")
	third.gone()
	for _, client := range []*crowdClient{first, fourth, fifth} {
		client.ask("/healthz", 200)
	}
}

// TestProbesAmongManyRequests checks that a request in progress keeps its connection, and that probes are answered
// beyond the limit.
func TestProbesAmongManyRequests(t *testing.T) {
	c := newCrowd(t, nil)
	var busy []*crowdClient
	for range bound {
		busy = append(busy, c.connect(get("/v1/scheduler")))
		<-c.store.asked
	}
	for range 3 {
		for range 20 { // more than the reserve
			c.connect("")
			c.connect("GET /hea")
		}
		for path, status := range map[string]int{"/healthz": 200, "/readyz": 200, "/v1/scheduler": 503,
			"/openapi.json": 503, "/": 503} {
			if header := c.connect("").ask(path, status); (header.Get("Retry-After") == "1") != (status == 503) {
				t.Errorf("%s: Retry-After is %q", path, header.Get("Retry-After"))
			}
		}
	}
	events := c.connect("GET /v1/turns/1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	events.want(200) // an EventSource would not reconnect after a 503
	close(c.store.answer)
	for _, client := range busy {
		client.want(200)
	}
	again := c.connect(get("/v1/scheduler"))
	<-c.store.asked
	again.want(200)
}

// short is a listener whose second Accept fails because the process has no file descriptor left.
type short struct {
	net.Listener
	times atomic.Int64
}

func (s *short) Accept() (net.Conn, error) {
	if s.times.Add(1) == 2 {
		return nil, &net.OpError{Op: "accept", Err: fmt.Errorf("accept4: %w", syscall.EMFILE)}
	}
	return s.Listener.Accept()
}

func TestAnIdleConnectionGivesWayToAFile(t *testing.T) {
	c := newCrowd(t, func(l net.Listener) net.Listener { return &short{Listener: l} })
	first := c.connect("")
	c.connect("").ask("/healthz", 200)
	first.gone()
}
