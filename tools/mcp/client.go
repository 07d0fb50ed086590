package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/membudget"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

// maxLanes is the maximum number of sessions with a server that has one session
// per lane.
const maxLanes = 64

// A Config sets up a Client.
type Config struct {
	Servers []Server
	Store   Store       // nil: definitions are not stored, so none differs from the pinned one
	Log     *zap.Logger // nil: nothing is logged
	Access  Access      // for tokens
	// Memory bounds what answers take while they are read and decoded, together with the results of
	// other tools. nil: unlimited.
	Memory *membudget.Budget

	limits *limits // nil: defaultLimits
}

// A Client provides the tools of servers. Close ends all sessions and programs
// that it started.
type Client struct {
	hosts  map[string]*host
	ctx    context.Context
	stop   context.CancelFunc
	follow sync.WaitGroup
}

// New returns a Client. It starts no session.
func New(cfg Config) *Client {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	bounds := defaultLimits()
	if cfg.limits != nil {
		bounds = *cfg.limits
	}
	bounds.Memory = cfg.Memory
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{hosts: map[string]*host{}, ctx: ctx, stop: stop}
	for _, s := range cfg.Servers {
		log := cfg.Log.With(field(s))
		c.hosts[s.Name] = &host{
			server: s, log: log, catalog: newCatalog(s, cfg.Store, log, bounds.Reread), limits: bounds,
			ctx: ctx, links: map[turnkeeper.Lane]*link{}, auth: newAuthorizer(s, cfg.Access),
		}
	}
	return c
}

// Load reads the stored definitions of the servers' tools. With them, the tools
// of a server that is down are known.
func (c *Client) Load(ctx context.Context) error {
	for _, h := range c.hosts {
		if err := h.catalog.read(ctx); err != nil {
			return fmt.Errorf("cannot read the stored tool definitions of MCP servers: %w", err)
		}
	}
	return nil
}

// Use opens the sessions of the named servers in the background, and retries
// servers that do not answer. It ignores names that are unknown or already in use.
func (c *Client) Use(names ...string) {
	for _, name := range names {
		if h := c.hosts[name]; h != nil && h.use() {
			c.follow.Go(h.stayConnected)
		}
	}
}

// Has reports whether there is a server of this name.
func (c *Client) Has(server string) bool { return c.hosts[server] != nil }

// Tool returns a server's tool with its current definition. It returns nil if there is no such
// server, or if the definition cannot be used, for example because it is too large; the log then
// says why.
func (c *Client) Tool(server, name string) tools.Tool {
	h := c.hosts[server]
	if h == nil {
		return nil
	}
	return h.newTool(name)
}

// Close ends all sessions, and returns when the started servers have ended.
func (c *Client) Close() {
	c.stop()
	var group sync.WaitGroup
	for _, h := range c.hosts {
		group.Go(h.close)
	}
	group.Wait()
	c.follow.Wait()
}

// A host is a server with its links.
type host struct {
	server  Server
	log     *zap.Logger
	catalog *catalog
	limits  limits
	ctx     context.Context // of the Client
	auth    authorizer      // nil: the server needs no tokens

	mu      sync.Mutex
	used    bool
	closed  bool
	links   map[turnkeeper.Lane]*link
	listing sync.WaitGroup
}

func (h *host) use() (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first = !h.used && !h.closed
	h.used = true
	return first
}

var errTooManyLanes = errors.New("too many conversations use it at once")

// link returns the link of a lane.
func (h *host) link(lane turnkeeper.Lane) (*link, error) {
	if !h.server.SessionPerLane {
		lane = ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errLinkClosed
	}
	if l := h.links[lane]; l != nil {
		return l, nil
	}
	if len(h.links) >= maxLanes {
		idlest := h.idlest()
		if idlest == "" {
			return nil, fmt.Errorf("the MCP server %q cannot be used now: %w. Nothing was run", h.server.Name,
				errTooManyLanes)
		}
		h.forget(idlest)
	}
	l := h.newLink()
	h.links[lane] = l
	if lane != "" && h.server.IdleTimeout > 0 {
		h.listing.Go(func() { h.endIdle(lane, l) })
	}
	return l, nil
}

// acquire returns the link of a lane and its session with a registered call,
// which the caller must finish. It replaces a link that is being closed for
// idleness.
func (h *host) acquire(ctx context.Context, lane turnkeeper.Lane) (*link, *session, error) {
	for {
		l, err := h.link(lane)
		if err != nil {
			return nil, nil, err
		}
		s, err := l.acquire(ctx)
		switch {
		case err == nil && s.fit(ctx):
			return l, s, nil
		case err == nil:
			s.finish() // the next session knows the tools
		case !errors.Is(err, errLinkClosed) || h.ended():
			return nil, nil, fmt.Errorf("the MCP server %q cannot be reached: %w. Nothing was run", h.server.Name, err)
		}
	}
}

// ended reports whether the client was closed.
func (h *host) ended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

func (h *host) newLink() *link {
	l := &link{timeout: h.server.connectTimeout(), limits: h.limits, log: h.log, used: time.Now()}
	l.connect = func(ctx context.Context) (*session, error) { return h.connect(ctx, l) }
	return l
}

// connect opens a session and lists the server's tools.
func (h *host) connect(ctx context.Context, l *link) (*session, error) {
	again := make(chan struct{}, 1)
	relist := func() {
		select {
		case again <- struct{}{}:
		default:
		}
	}
	s, err := connector{server: h.server, log: h.log, limits: h.limits, relist: relist, auth: h.auth}.connect(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := s.list(ctx)
	if err != nil {
		s.drop(err)
		return nil, plainError(err)
	}
	h.catalog.see(ctx, seen)
	l.attempts.Go(func() { h.followList(s, seen, again) })
	return s, nil
}

// followList reads the list of tools again when the server reports a change. The pause after a read doubles, up to
// limits.LastRelist, while the list stays the same, or the server reports the next change within it. Many servers
// report a change at each list. Without a report for limits.LastRelist, it is limits.Relist again.
func (h *host) followList(s *session, known []mcpdef.Tool, again <-chan struct{}) {
	pause := h.limits.Relist
	for {
		quiet := time.Now()
		select {
		case <-s.lost():
			return
		case <-again:
		}
		if time.Since(quiet) > h.limits.LastRelist {
			pause = h.limits.Relist
		}
		seen, changed := h.readList(s, known)
		known = seen
		timer := time.NewTimer(pause)
		select {
		case <-s.lost():
			timer.Stop()
			return
		case <-timer.C:
		}
		if changed && len(again) == 0 {
			pause = h.limits.Relist
			continue
		}
		if pause = min(2*pause, h.limits.LastRelist); pause == h.limits.LastRelist {
			h.log.Debug("an MCP server reports changes of its tools again and again", zap.Duration("read_every", pause))
		}
	}
}

// readList reads the list of tools, and reports whether it differs from the known one. If it cannot be read, it returns
// that one.
func (h *host) readList(s *session, known []mcpdef.Tool) (seen []mcpdef.Tool, changed bool) {
	ctx, stop := context.WithTimeout(s.ctx, h.server.connectTimeout())
	defer stop()
	seen, err := s.list(ctx)
	if err != nil {
		if s.ctx.Err() == nil {
			h.log.Warn("the changed list of an MCP server's tools could not be read", zap.Error(plainError(err)))
		}
		return known, false
	}
	same := slices.EqualFunc(known, seen, func(a, b mcpdef.Tool) bool {
		return a.Name == b.Name && a.Seen.Hash == b.Seen.Hash
	})
	if same {
		return known, false
	}
	h.catalog.see(ctx, seen)
	h.log.Info("the list of an MCP server's tools has changed", zap.Int("tools", len(seen)))
	return seen, true
}

// stayConnected keeps the shared session open. If there is one session per
// lane, it opens one to list the tools, and ends it.
func (h *host) stayConnected() {
	l, err := h.link("")
	if err != nil {
		return
	}
	for h.ctx.Err() == nil {
		s, err := l.acquire(h.ctx)
		if err != nil {
			h.pause(err)
			continue
		}
		s.finish()
		if h.server.SessionPerLane {
			h.mu.Lock()
			h.forget("")
			h.mu.Unlock()
			return
		}
		select {
		case <-s.lost():
			h.pause(nil)
		case <-h.ctx.Done():
		}
	}
}

// pause waits until the next attempt.
func (h *host) pause(err error) {
	wait := h.limits.FirstPause / 4
	if u, ok := errors.AsType[*unreachable](err); ok && u.wait > wait {
		wait = u.wait
	}
	if waitsForLogin(err) {
		wait = loginPause
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.ctx.Done():
	}
}

// endIdle ends the link of a lane after it was unused for IdleTimeout.
func (h *host) endIdle(lane turnkeeper.Lane, l *link) {
	for left := h.server.IdleTimeout; left > 0; left = h.server.IdleTimeout - l.unused() {
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-h.ctx.Done():
			timer.Stop()
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.links[lane] == l && !h.closed && l.unused() > 0 {
		h.forget(lane)
	}
}

// forget ends a link, in the background.
func (h *host) forget(lane turnkeeper.Lane) {
	if l := h.links[lane]; l != nil && !h.closed {
		delete(h.links, lane)
		h.listing.Go(l.close)
	}
}

// idlest returns the lane that was unused for longest, or "" if all are in use.
func (h *host) idlest() (lane turnkeeper.Lane) {
	var longest time.Duration
	for name, l := range h.links {
		if unused := l.unused(); unused > longest {
			lane, longest = name, unused
		}
	}
	return lane
}

func (h *host) close() {
	h.mu.Lock()
	h.closed = true
	links := h.links
	h.links = nil
	h.mu.Unlock()
	var group sync.WaitGroup
	for _, l := range links {
		group.Go(l.close)
	}
	group.Wait()
	h.listing.Wait()
	if h.auth != nil {
		h.auth.close()
	}
}

// Probe lists a server's tools in a session of its own, sorted by name. It
// stores nothing but a renewed login.
func Probe(ctx context.Context, s Server, access Access, log *zap.Logger) ([]mcpdef.Tool, error) {
	if log == nil {
		log = zap.NewNop()
	}
	ctx, stop := context.WithTimeout(ctx, s.connectTimeout())
	defer stop()
	tokens := newAuthorizer(s, access)
	if tokens != nil {
		defer tokens.close()
	}
	session, err := connector{server: s, log: log, limits: defaultLimits(), relist: func() {},
		auth: tokens}.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer session.close()
	seen, err := session.list(ctx)
	slices.SortFunc(seen, func(a, b mcpdef.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return seen, plainError(err)
}
