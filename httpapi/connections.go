package httpapi

import (
	lists "container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// reserve is the number of connections beyond http_connections that are accepted while all of those
// have requests in progress: for probes, and for requests that are answered 503.
const reserve = 16

// connections is a listener that limits the number of open connections. At the limit, a new
// connection replaces the one that has waited longest for its client: for a request or the rest of its
// header, or, after the handler returned, for the client to send its body or read the response. No
// connection is closed while its request is being handled.
type connections struct {
	net.Listener
	limit int // without the reserve

	mu      sync.Mutex
	changed *sync.Cond // a connection was closed, or can be closed now
	closed  bool
	open    int
	idle    lists.List // of *conn waiting for a request or its header; oldest first
	ending  lists.List // of *conn whose handler has returned, but whose request is not finished; oldest first
}

func newConnections(l net.Listener, limit int) *connections {
	c := &connections{Listener: l, limit: limit}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if err == nil {
			return c.admit(accepted)
		}
		// The process is out of file descriptors: closing an idle connection frees one.
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || !c.closeIdle() {
			return nil, err
		}
	}
}

// admit makes room for a connection, waiting for a request to end if necessary.
func (c *connections) admit(accepted net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.open >= c.limit && !c.closed {
		if c.closeIdleLocked() {
			continue
		}
		if c.open < c.limit+reserve {
			break
		}
		c.changed.Wait()
	}
	if c.closed {
		_ = accepted.Close()
		return nil, net.ErrClosed
	}
	c.open++
	n := &conn{Conn: accepted, of: c}
	n.in, n.at = &c.idle, c.idle.PushBack(n)
	return n, nil
}

// closeIdle closes the oldest idle connection, and reports whether there was one.
func (c *connections) closeIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeIdleLocked()
}

// closeIdleLocked is closeIdle with mu held.
func (c *connections) closeIdleLocked() bool {
	for _, l := range []*lists.List{&c.idle, &c.ending} {
		first := l.Front()
		if first == nil {
			continue
		}
		n := first.Value.(*conn)
		n.move(nil)
		n.leave()
		_ = n.Conn.Close() // does not block: SO_LINGER is not set
		return true
	}
	return false
}

// Close implements net.Listener.
func (c *connections) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.changed.Broadcast()
	return c.Listener.Close()
}

// state is the server's ConnState callback.
func (c *connections) state(of net.Conn, state http.ConnState) {
	n, ok := of.(*conn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateIdle && !n.left {
		n.move(&c.idle)
		c.changed.Broadcast()
	}
}

type connKey struct{}

// context adds the connection to the context of its requests.
func (*connections) context(ctx context.Context, of net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, of)
}

// handler marks connections as busy while their requests are handled.
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, ok := r.Context().Value(connKey{}).(*conn)
		if ok && !n.begin() { // closed just now to make room
			panic(http.ErrAbortHandler)
		}
		if ok {
			defer n.end()
		}
		next.ServeHTTP(w, r)
	})
}

// A conn is an open connection.
type conn struct {
	net.Conn
	of *connections

	// Guarded by of.mu.
	in   *lists.List // idle or ending; nil: its request is being handled, or it is closed
	at   *lists.Element
	left bool // no longer counted in open
}

func (n *conn) move(to *lists.List) {
	if n.in != nil {
		n.in.Remove(n.at)
	}
	n.in, n.at = to, nil
	if to != nil {
		n.at = to.PushBack(n)
	}
}

func (n *conn) leave() {
	if n.left {
		return
	}
	n.left = true
	n.of.open--
	n.of.changed.Broadcast()
}

func (n *conn) begin() bool {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if n.left {
		return false
	}
	n.move(nil)
	return true
}

func (n *conn) end() {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if !n.left {
		n.move(&n.of.ending)
		n.of.changed.Broadcast()
	}
}

// Close implements net.Conn.
func (n *conn) Close() error {
	n.of.mu.Lock()
	n.move(nil)
	n.leave()
	n.of.mu.Unlock()
	return n.Conn.Close()
}
