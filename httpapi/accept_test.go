package httpapi

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"testing/synctest"
)

// accepts is a listener that returns the given results in order, then net.ErrClosed.
type accepts struct {
	net.Listener
	errs []error // nil: a connection
}

func (a *accepts) Accept() (net.Conn, error) {
	if len(a.errs) == 0 {
		return nil, net.ErrClosed
	}
	err := a.errs[0]
	a.errs = a.errs[1:]
	if err != nil {
		return nil, err
	}
	return new(closing), nil
}

func (*accepts) Close() error { return nil }

// closing is a connection that records whether it was closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// open accepts n connections.
func open(t *testing.T, c *connections, n int) (all []*conn) {
	t.Helper()
	for range n {
		accepted, err := c.admit(new(closing))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, accepted.(*conn))
	}
	return all
}

func wasClosed(n *conn) bool { return n.Conn.(*closing).closed }

func TestAcceptWithoutFiles(t *testing.T) {
	t.Parallel()
	other := errors.New("another error")
	for name, c := range map[string]struct {
		idle     int
		first    error
		want     error // of Accept
		givesWay bool
	}{
		"too many in the process":          {1, syscall.EMFILE, other, true},
		"too many in the system":           {1, syscall.ENFILE, other, true},
		"too many, and none is idle":       {0, syscall.EMFILE, syscall.EMFILE, false},
		"another error":                    {1, other, other, false},
		"the client has gone away already": {1, syscall.ECONNABORTED, syscall.ECONNABORTED, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newConnections(&accepts{errs: []error{c.first, other}}, 10)
			idle := open(t, l, c.idle)
			if _, err := l.Accept(); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if c.idle > 0 && wasClosed(idle[0]) != c.givesWay {
				t.Errorf("the idle connection is closed: %v", !c.givesWay)
			}
		})
	}
}

// TestAConnectionWaitsForRoom checks that connections beyond the limit and its reserve wait until one is free or the
// listener is closed.
func TestAConnectionWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newConnections(&accepts{}, 2)
		var busy []*conn
		for range 2 + reserve {
			n := open(t, l, 1)[0]
			n.begin()
			busy = append(busy, n)
		}
		admitted := make(chan error)
		admit := func() { _, err := l.admit(new(closing)); admitted <- err }
		waits := func() {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-admitted:
				t.Fatalf("one too many does not wait: %v", err)
			default:
			}
		}
		go admit()
		waits()
		_ = busy[0].Close()
		if err := <-admitted; err != nil || l.open != 2+reserve {
			t.Fatalf("after one was closed: %v, %d are open", err, l.open)
		}
		l.idle.Front().Value.(*conn).begin()
		go admit()
		waits()
		_ = l.Close()
		if err := <-admitted; !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestAClosedListenerAdmitsNobody(t *testing.T) {
	t.Parallel()
	l := newConnections(&accepts{}, 2)
	_ = l.Close()
	late := new(closing)
	if _, err := l.admit(late); !errors.Is(err, net.ErrClosed) || !late.closed {
		t.Errorf("%v, closed: %v", err, late.closed)
	}
}

// TestWhichConnectionGivesWay checks that connections waiting for a request are closed before those whose response is
// still being read.
func TestWhichConnectionGivesWay(t *testing.T) {
	t.Parallel()
	l := newConnections(&accepts{}, 10)
	all := open(t, l, 4)
	ending, idle, busy, gone := all[0], all[1], all[2], all[3]
	for _, n := range all {
		n.begin()
	}
	ending.end()
	idle.end()
	l.state(idle, http.StateIdle)
	l.state(busy, http.StateActive)
	_ = gone.Close()
	l.state(gone, http.StateIdle)
	l.state(new(closing), http.StateIdle) // a connection of another listener
	if l.open != 3 || l.idle.Len() != 1 || l.ending.Len() != 1 {
		t.Fatalf("%d are open, %d idle, %d ending", l.open, l.idle.Len(), l.ending.Len())
	}
	for i, want := range []*conn{idle, ending} {
		if !l.closeIdle() || !wasClosed(want) {
			t.Errorf("number %d did not give way", i+1)
		}
	}
	if l.closeIdle() || wasClosed(busy) {
		t.Error("a connection with a request gave way")
	}
}

func TestRequestsKeepTheirConnection(t *testing.T) {
	t.Parallel()
	l := newConnections(&accepts{}, 10)
	n := open(t, l, 1)[0]
	served := 0
	handler := l.handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served++
		if l.idle.Len() != 0 || l.ending.Len() != 0 {
			t.Error("a connection may give way during its request")
		}
	}))
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	handler.ServeHTTP(nil, request.WithContext(l.context(t.Context(), n)))
	if l.ending.Len() != 1 {
		t.Error("the connection may not give way after its request")
	}
	l.closeIdle()
	handler.ServeHTTP(nil, request) // a request that did not come through this listener
	if served != 2 {
		t.Errorf("%d requests were served", served)
	}
}

// TestAConnectionThatGaveWay checks that a connection closed to make room serves no request and is no longer counted.
func TestAConnectionThatGaveWay(t *testing.T) {
	t.Parallel()
	l := newConnections(&accepts{}, 10)
	n := open(t, l, 2)[0]
	if !l.closeIdle() || l.open != 1 {
		t.Fatalf("%d are open", l.open)
	}
	func() {
		defer func() {
			if got, _ := recover().(error); !errors.Is(got, http.ErrAbortHandler) {
				t.Errorf("its request ended with %v", got)
			}
		}()
		l.handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was served") })).
			ServeHTTP(nil, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(l.context(t.Context(), n)))
	}()
	if _ = n.Close(); l.open != 1 {
		t.Errorf("after it was closed, %d are open", l.open)
	}
	if n.end(); l.ending.Len() != 0 {
		t.Error("it may give way again")
	}
}
