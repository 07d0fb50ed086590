package storagetest

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// A Cut selects what a Proxy does with a complete unit of work from a client.
type Cut int

// The cuts. After each one except Pass, nothing more goes through the connection.
const (
	Pass     Cut = iota
	Lose         // the server does not get it; the connection breaks
	Unanswer     // the server does it; the answer is lost and the connection breaks
	Abandon      // the server gets it; the connection breaks at once
	Freeze       // the server does not get it; the connection stays open, but dead
	Hush         // the server does it; the answer is lost and the connection stays open, but dead
)

// A Proxy forwards data between clients and a Postgres server, and cuts connections according to its
// plan. Any number of clients may connect over TCP.
type Proxy struct {
	network, target string
	listener        net.Listener
	over            chan struct{}

	mu      sync.Mutex
	plan    func(Sent) Cut
	refuses bool
	links   map[*link]struct{}
}

// NewProxy starts a proxy for the server at an address (a socket, or TCP without TLS), and returns
// the address of the proxy. The proxy is closed when the test ends.
func NewProxy(t testing.TB, server string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{network: "tcp", target: u.Host, over: make(chan struct{}), links: map[*link]struct{}{}}
	query := u.Query()
	if dir := query.Get("host"); dir != "" {
		port := query.Get("port")
		if port == "" {
			port = "5432"
		}
		p.network, p.target = "unix", dir+"/.s.PGSQL."+port
	}
	if p.listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	query.Del("host")
	query.Del("port")
	u.Host, u.RawQuery = p.listener.Addr().String(), query.Encode()
	var group sync.WaitGroup
	group.Go(func() { p.serve(&group) })
	t.Cleanup(func() {
		_ = p.listener.Close()
		close(p.over)
		p.Break()
		group.Wait()
	})
	return p, u.String()
}

// Plan sets the function that decides what to do with each unit; nil passes all of them. It is called
// from many goroutines. If it blocks, the unit waits.
func (p *Proxy) Plan(plan func(Sent) Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

// CutNext applies one cut to the next unit that match accepts; later units pass. happened is closed
// when the cut is decided.
func (p *Proxy) CutNext(what Cut, match func(Sent) bool) (happened <-chan struct{}) {
	done := make(chan struct{})
	var mu sync.Mutex
	cut := false
	p.Plan(func(sent Sent) Cut {
		mu.Lock()
		defer mu.Unlock()
		if cut || !match(sent) {
			return Pass
		}
		cut = true
		close(done)
		return what
	})
	return done
}

// Refuse sets whether the proxy closes new connections at once.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = refuse
}

// Break closes all open connections.
func (p *Proxy) Break() {
	for _, l := range p.open() {
		l.close()
	}
}

// FreezeAll freezes all open connections without closing them: they accept data, but do not forward
// it.
func (p *Proxy) FreezeAll() {
	for _, l := range p.open() {
		l.freeze()
	}
}

func (p *Proxy) open() (links []*link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) decide(sent Sent) Cut {
	p.mu.Lock()
	plan := p.plan
	p.mu.Unlock()
	if plan == nil {
		return Pass
	}
	return plan(sent)
}

func (p *Proxy) serve(group *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuses := p.refuses
		p.mu.Unlock()
		if refuses {
			_ = client.Close()
			continue
		}
		server, err := net.Dial(p.network, p.target)
		if err != nil {
			_ = client.Close() // the server is down
			continue
		}
		l := newLink(p, client, server)
		p.mu.Lock()
		p.links[l] = struct{}{}
		p.mu.Unlock()
		group.Go(l.forward)
		group.Go(l.back)
	}
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
