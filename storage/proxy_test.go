package storage_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A cut says what a proxy does to a transaction that a client has sent whole.
type cut int

const (
	pass     cut = iota
	lose         // the server never gets it
	unanswer     // the server has done it, and its answer is lost
	abandon      // the server gets it, and the connection is gone at once
)

// A proxy stands between clients and the test's server, and cuts connections
// when plan says so. plan is asked for each message or pipeline that ends a
// transaction of the client's, with what the client sent.
type proxy struct {
	target   string
	listener net.Listener

	mu    sync.Mutex
	plan  func(sent []byte) cut
	conns map[net.Conn]struct{}
}

// newProxy starts a proxy before the server of url and returns the url through
// it.
func newProxy(t *testing.T, server string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	const socket = ".s.PGSQL.5432"
	dir, err := os.MkdirTemp("", "proxy") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: filepath.Join(query.Get("host"), socket), listener: listener, conns: map[net.Conn]struct{}{}}
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	var group sync.WaitGroup
	group.Go(func() { p.serve(&group) })
	t.Cleanup(func() {
		_ = listener.Close()
		p.closeAll()
		group.Wait()
	})
	return p, u.String()
}

// cutNext does one cut to the next transaction that match knows; the ones after
// it pass. It returns a function that says whether that has happened.
func (p *proxy) cutNext(what cut, match func(sent []byte) bool) (happened func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := false
	p.plan = func(sent []byte) cut {
		if done || !match(sent) {
			return pass
		}
		done = true
		return what
	}
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return done
	}
}

func (p *proxy) decide(sent []byte) cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plan == nil {
		return pass
	}
	return p.plan(sent)
}

func (p *proxy) track(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
}

func (p *proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) serve(group *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.target)
		if err != nil {
			_ = client.Close() // the server is away
			continue
		}
		p.track(client, server)
		link := &link{proxy: p, client: client, server: server}
		group.Go(link.forward)
		group.Go(link.back)
	}
}

// A link is one connection through a proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn

	mu   sync.Mutex
	mute bool // answers are swallowed, and the link is cut after the next whole one
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// forward passes the client's messages on, a transaction at a time.
func (l *link) forward() {
	defer l.close()
	startup, err := readMessage(l.client, 0)
	if err != nil || binary.BigEndian.Uint32(startup[4:]) == cancelRequest {
		return // what was sent is not taken back
	}
	if _, err := l.server.Write(startup); err != nil {
		return
	}
	var sent []byte
	for {
		message, err := readMessage(l.client, 1)
		if err != nil {
			return
		}
		sent = append(sent, message...)
		if !bytes.ContainsAny(message[:1], "SQHXp") { // Sync, Query, Flush, Terminate, password
			continue
		}
		if !l.pass(sent) {
			return
		}
		sent = nil
	}
}

func (l *link) pass(sent []byte) bool {
	what := l.proxy.decide(sent)
	if what == lose {
		return false
	}
	if what == unanswer {
		l.mu.Lock()
		l.mute = true
		l.mu.Unlock()
	}
	_, err := l.server.Write(sent)
	return err == nil && what != abandon
}

// back passes the server's answers on.
func (l *link) back() {
	defer l.close()
	for {
		message, err := readMessage(l.server, 1)
		if err != nil {
			return
		}
		l.mu.Lock()
		mute := l.mute
		l.mu.Unlock()
		switch {
		case mute && message[0] == 'Z': // ReadyForQuery: it is done
			return
		case mute:
		default:
			if _, err := l.client.Write(message); err != nil {
				return
			}
		}
	}
}

// cancelRequest stands where other first messages have the protocol's version.
const cancelRequest = 80877102

// readMessage reads one message of the protocol: its type (which the first of a
// client lacks), its length, its content.
func readMessage(r io.Reader, typeBytes int) ([]byte, error) {
	head := make([]byte, typeBytes+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	body := make([]byte, int(binary.BigEndian.Uint32(head[typeBytes:]))-4)
	_, err := io.ReadFull(r, body)
	return append(head, body...), err
}

// executes says that a pipeline runs statements that were prepared before: the
// write itself, not the preparation.
func executes(sent []byte) bool {
	for len(sent) >= 5 {
		if sent[0] == 'E' {
			return true
		}
		sent = sent[1+binary.BigEndian.Uint32(sent[1:5]):]
	}
	return false
}

// commits says that a message ends a transaction block.
func commits(sent []byte) bool {
	return sent[0] == 'Q' && bytes.Contains(sent, []byte("commit"))
}
