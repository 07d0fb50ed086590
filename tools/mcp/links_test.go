package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/tools/mcp/mcpdef"
)

// TestALinkOverItsLife follows the sessions of a link: one attempt for all who wait, what operators read of losses,
// when the next session may be opened, and how the link ends.
func TestALinkOverItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		logged := func(want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, entry := range logs.TakeAll() {
				fields, _ := json.Marshal(entry.ContextMap())
				got = append(got, fmt.Sprintf("%s: %s %s", entry.Level, entry.Message, fields))
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("logged %q, want %q", got, want)
			}
		}
		var sessions []*session
		var fails error
		took := time.Second
		l := &link{timeout: time.Minute, limits: defaultLimits(), log: zap.New(core), used: time.Now()}
		l.connect = func(ctx context.Context) (*session, error) {
			select {
			case <-time.After(took):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if fails != nil {
				return nil, fails
			}
			s, _ := newTestSession(Server{})
			sessions = append(sessions, s)
			return s, nil
		}
		acquired := make(chan *session, 3)
		for range 3 {
			go func() {
				s, err := l.acquire(t.Context())
				if err != nil {
					t.Error(err)
				}
				acquired <- s
			}()
		}
		synctest.Wait()
		if l.unused() != 0 {
			t.Error("it is unused while it connects")
		}
		gone, stop := context.WithCancelCause(t.Context())
		stop(errors.New("the call was cancelled"))
		if s, err := l.acquire(gone); s != nil || fmt.Sprint(err) != "the call was cancelled" {
			t.Errorf("a call that has ended: %v, %v", s, err)
		}
		one := <-acquired
		for range 2 {
			if s := <-acquired; s != one || len(sessions) != 1 {
				t.Errorf("%d sessions for three calls", len(sessions))
			}
		}
		time.Sleep(time.Hour)
		if l.unused() != 0 {
			t.Error("it is unused while calls run")
		}
		for range 3 {
			one.finish()
		}
		if got := l.unused(); got != time.Hour {
			t.Errorf("after its last call it is unused for %s", got)
		}
		one.drop(errors.New("it broke"))
		logged(`warn: the session with an MCP server was lost {"error":"it broke","failures":1}`)
		two, err := l.acquire(t.Context()) // at once: it is the first loss
		if err != nil || two == one {
			t.Fatal(err)
		}
		two.drop(errors.New("again"))
		logged(`warn: the session with an MCP server was lost {"error":"again","failures":2}`)
		_, err = l.acquire(t.Context())
		u, ok := errors.AsType[*unreachable](err)
		if !ok || u.wait < time.Second/2 || u.wait > 3*time.Second/2 || !strings.HasPrefix(err.Error(),
			"again; it is tried again in ") || len(sessions) != 2 {
			t.Errorf("after two losses: %v", err)
		}
		time.Sleep(2 * time.Second)
		fails = errors.New("refused")
		if _, err := l.acquire(t.Context()); err == nil || !strings.HasPrefix(err.Error(),
			"refused; it is tried again in ") {
			t.Errorf("an attempt that fails: %v", err)
		}
		logged(`warn: an MCP server cannot be reached {"error":"refused","failures":3}`)
		time.Sleep(time.Minute)
		fails = &AuthError{Why: "nobody is logged in", Login: "h"}
		for range 3 {
			if _, err := l.acquire(t.Context()); err == nil ||
				err.Error() != `nobody is logged in: run "turnctl mcp login h"` {
				t.Errorf("without a login: %v", err)
			}
			time.Sleep(time.Second)
		}
		logged(`warn: an MCP server waits for a login {"error":"nobody is logged in: run \"turnctl mcp login h\""}`)
		fails = nil
		three, err := l.acquire(t.Context())
		if err != nil || l.why != nil {
			t.Fatal(err, l.why)
		}
		three.finish()
		l.close()
		if cause := context.Cause(three.ctx); !errors.Is(cause, errClosed) {
			t.Errorf("its session ended by %v", cause)
		}
		logged()
		if _, err := l.acquire(t.Context()); !errors.Is(err, errLinkClosed) ||
			err.Error() != "this worker is stopping" {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestALinkThatIsClosedWhileItConnects checks that an attempt ends with its link, and that a session which comes too
// late is closed.
func TestALinkThatIsClosedWhileItConnects(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := newTestSession(Server{})
			l := &link{timeout: time.Minute, limits: defaultLimits(), log: zap.NewNop()}
			l.connect = func(ctx context.Context) (*session, error) {
				<-ctx.Done()
				if late {
					return s, nil
				}
				return nil, ctx.Err()
			}
			failed := make(chan error)
			go func() {
				_, err := l.acquire(t.Context())
				failed <- err
			}()
			synctest.Wait()
			began := time.Now()
			l.close()
			if err := <-failed; !errors.Is(err, errLinkClosed) || time.Since(began) != 0 {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			if closed := errors.Is(context.Cause(s.ctx), errClosed); closed != late {
				t.Errorf("the late session is closed: %t", closed)
			}
		})
	}
}

// TestIdleLanes checks that the session of a lane ends after it was unused for the idle time, not while a call runs,
// and that the next call of the lane gets another link.
func TestIdleLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h := &host{server: Server{Name: "h", SessionPerLane: true, IdleTimeout: time.Minute}, limits: defaultLimits(),
			log: zap.NewNop(), ctx: ctx, links: map[turnkeeper.Lane]*link{}}
		first, err := h.link("lane")
		if err != nil {
			t.Fatal(err)
		}
		s, _ := newTestSession(h.server)
		first.mu.Lock()
		first.current, first.used = s, time.Now()
		first.mu.Unlock()
		s.begin()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if same, _ := h.link("lane"); same != first {
			t.Error("the link ended while a call ran")
		}
		s.finish()
		first.mu.Lock()
		first.used = time.Now()
		first.mu.Unlock()
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		if linkOf(h, "lane") != first || s.ctx.Err() != nil {
			t.Error("it ended before its idle time")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if linkOf(h, "lane") != nil || !errors.Is(context.Cause(s.ctx), errClosed) {
			t.Errorf("after its idle time there is %v, the session has ended by %v", linkOf(h, "lane"),
				context.Cause(s.ctx))
		}
		if second, err := h.link("lane"); err != nil || second == first {
			t.Errorf("the next link: %v", err)
		}
		shared := &host{server: Server{IdleTimeout: time.Minute}, limits: defaultLimits(), log: zap.NewNop(), ctx: ctx,
			links: map[turnkeeper.Lane]*link{}}
		one, _ := shared.link("a")
		two, _ := shared.link("b")
		if one != two {
			t.Error("lanes that share a session have links of their own")
		}
		stop()
		h.close()
		shared.close()
		if _, err := h.link("lane"); !errors.Is(err, errLinkClosed) {
			t.Errorf("closed: %v", err)
		}
		if h.use() || !h.ended() {
			t.Error("a closed server is used")
		}
	})
}

// linkOf returns the link that a lane has.
func linkOf(h *host, lane turnkeeper.Lane) *link {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.links[lane]
}

// TestWhatAClientKnows checks which servers a client has, and how it says that stored definitions cannot be read.
func TestWhatAClientKnows(t *testing.T) {
	t.Parallel()
	store := &closet{tools: []mcpdef.Tool{{Server: "h", Name: "a", Pinned: described("1"), Seen: described("1")}}}
	c := New(Config{Servers: []Server{{Name: "h", Command: []string{"/nowhere"}}}, Store: store})
	defer c.Close()
	if !c.Has("h") || c.Has("i") || c.Tool("i", "a") != nil {
		t.Error("it has other servers")
	}
	if err := c.Load(t.Context()); err != nil || c.Tool("h", "a").Spec().Description != "does 1" {
		t.Errorf("loaded: %v, %+v", err, c.Tool("h", "a").Spec())
	}
	store.away = errors.New("no database")
	if err := c.Load(t.Context()); err == nil ||
		err.Error() != "cannot read the stored tool definitions of MCP servers: no database" {
		t.Errorf("without a database: %v", err)
	}
}
