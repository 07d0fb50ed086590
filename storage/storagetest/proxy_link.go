package storagetest

import (
	"net"
	"sync"
)

// A link is one connection through a proxy. Two goroutines serve it.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	dead           chan struct{} // closed: it is frozen
	freezing       sync.Once

	mu     sync.Mutex
	ending Cut  // what to do with answers; Pass: pass them on
	status byte // of the server's transaction, as it said last: I, T or E
}

func newLink(p *Proxy, client, server net.Conn) *link {
	return &link{proxy: p, client: client, server: server, dead: make(chan struct{}), status: 'I'}
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
	l.proxy.forget(l)
}

func (l *link) freeze() { l.freezing.Do(func() { close(l.dead) }) }

func (l *link) frozen() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// end runs when a goroutine of the link has no more to do. It closes the link, but a
// frozen link stays open until the proxy is closed.
func (l *link) end() {
	if l.frozen() {
		<-l.proxy.over
	}
	l.close()
}

// forward passes the client's messages on, a unit at a time.
func (l *link) forward() {
	defer l.end()
	startup, err := readMessage(l.client, 0)
	if err != nil || isCancel(startup) {
		return // cancel requests are not passed on
	}
	if _, err := l.server.Write(startup); err != nil {
		return
	}
	units := newUnits(startup)
	for {
		message, err := readMessage(l.client, 1)
		if err != nil || l.frozen() {
			return
		}
		if !units.take(message) {
			continue
		}
		l.mu.Lock()
		sent, raw := units.end(l.status)
		l.mu.Unlock()
		if !l.pass(sent, raw) {
			return
		}
	}
}

// pass does to a unit what the plan says, and reports whether the link goes on.
func (l *link) pass(sent Sent, raw []byte) bool {
	what := Pass
	if sent.Executes() {
		what = l.proxy.decide(sent)
	}
	switch what {
	case Lose:
		return false
	case Freeze:
		l.freeze()
		return false
	case Unanswer, Hush:
		l.mu.Lock()
		l.ending = what
		l.mu.Unlock()
	case Pass, Abandon:
	}
	if l.frozen() {
		return false
	}
	_, err := l.server.Write(raw)
	return err == nil && what != Abandon
}

// back passes the server's answers on.
func (l *link) back() {
	defer l.end()
	for {
		message, err := readMessage(l.server, 1)
		if err != nil || l.frozen() {
			return
		}
		const readyForQuery = 'Z'
		ready := message[0] == readyForQuery
		l.mu.Lock()
		if ready {
			l.status = message[len(message)-1]
		}
		ending := l.ending
		l.mu.Unlock()
		switch {
		case ending == Pass:
			if _, err := l.client.Write(message); err != nil {
				return
			}
		case ready && ending == Hush: // it is done
			l.freeze()
			return
		case ready:
			return
		}
	}
}
