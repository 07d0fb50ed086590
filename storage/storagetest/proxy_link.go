package storagetest

import (
	"net"
	"sync"
)

// A link is one connection through a proxy. Two goroutines serve it.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	dead           chan struct{} // closed when the link is frozen
	freezing       sync.Once

	mu     sync.Mutex
	ending Cut  // what to do with answers; Pass: forward them
	status byte // last reported status of the server's transaction: I, T or E
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

// end runs when a goroutine of the link ends. It closes the link, but a frozen link stays open until
// the proxy is closed.
func (l *link) end() {
	if l.frozen() {
		<-l.proxy.over
	}
	l.close()
}

// forward forwards the client's messages, one unit at a time.
func (l *link) forward() {
	defer l.end()
	startup, err := readMessage(l.client, 0)
	if err != nil || isCancel(startup) {
		return // cancel requests are not forwarded
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

// pass handles a unit according to the plan, and reports whether the link stays in use.
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

// back forwards the server's answers.
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
		case ready && ending == Hush: // the server has done it
			l.freeze()
			return
		case ready:
			return
		}
	}
}
