package jobs_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A cutter is a proxy between a client and the server. It can drop one request, or the answer to
// one, and then closes the connection.
type cutter struct {
	t     *testing.T
	to    string
	unix  bool
	mu    sync.Mutex
	armed bool
	done  bool // drop the answer, not the request
}

// newCutter starts a cutter, and returns the database URL that goes through it.
func newCutter(t *testing.T, address string) (*cutter, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, to: u.Host}
	if dir := u.Query().Get("host"); dir != "" {
		port := u.Query().Get("port")
		if port == "" {
			port = "5432"
		}
		c.to, c.unix = dir+"/.s.PGSQL."+port, true
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.armed {
			t.Error("a request was to be cut, and none came")
		}
	})
	go c.serve(listener)
	query := u.Query()
	query.Del("host")
	query.Del("port")
	u.Host, u.RawQuery = listener.Addr().String(), query.Encode()
	return c, u.String()
}

func (c *cutter) cutNext(done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.done = true, done
}

func (c *cutter) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		network := "tcp"
		if c.unix {
			network = "unix"
		}
		server, err := new(net.Dialer).DialContext(c.t.Context(), network, c.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		link := &link{cutter: c, client: client, server: server}
		go link.requests()
		go link.answers()
	}
}

// A link is one connection.
type link struct {
	*cutter
	client, server net.Conn
	losing         bool // guarded by the cutter
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (l *link) requests() {
	defer l.close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := l.client.Read(buffer)
		if err != nil || l.loses(buffer[:n]) {
			return
		}
		if _, err := l.server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// loses reports whether the request is dropped. An armed cutter acts on the next request that
// executes a statement.
func (l *link) loses(sent []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	const execute = "E\x00\x00\x00\x09\x00\x00\x00\x00\x00" // of the unnamed portal, all rows
	if !l.armed || !bytes.Contains(sent, []byte(execute)) {
		return false
	}
	l.armed = false
	l.losing = l.done
	return !l.done
}

func (l *link) answers() {
	defer l.close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := l.server.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		losing := l.losing
		l.mu.Unlock()
		if losing {
			return
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
