package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/tools/mcp/mcpdef"
)

// TestWhenALinkConnects checks the pauses between attempts: about 1 s after the first failure, twice as long after each
// further one, at most about a minute; none after an answered call; and that a missing login is looked for by each
// call.
func TestWhenALinkConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		why := errors.New("refused")
		l := &link{timeout: time.Minute, limits: defaultLimits(), log: zap.NewNop()}
		l.connect = func(context.Context) (*session, error) {
			at = append(at, time.Since(began))
			return nil, why
		}
		try := func() error {
			_, err := l.acquire(t.Context())
			return err
		}
		for time.Since(began) < 10*time.Minute {
			if err := try(); err == nil {
				t.Fatal("a session out of nothing")
			}
			time.Sleep(10 * time.Millisecond)
		}
		for i, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			if gap := at[i+1] - at[i]; gap < pause*time.Second/2 || gap > pause*time.Second*3/2+20*time.Millisecond {
				t.Errorf("pause %d is %s, want about %d s", i, gap, pause)
			}
		}
		l.worked()
		l.mu.Lock()
		l.notBefore = time.Time{}
		l.mu.Unlock()
		first := len(at)
		for len(at) < first+2 {
			_ = try()
			time.Sleep(10 * time.Millisecond)
		}
		if gap := at[first+1] - at[first]; gap > 1520*time.Millisecond {
			t.Errorf("after an answered call, the first pause is %s", gap)
		}
		why = &AuthError{Why: "nobody is logged in to it", Login: "h"}
		time.Sleep(time.Hour)
		first = len(at)
		_ = try()
		_ = try() // shares the result
		time.Sleep(50 * time.Millisecond)
		_ = try()
		if len(at) != first+2 {
			t.Errorf("%d looks for a login, want 2", len(at)-first)
		}
	})
}

// TestHowLongAServerRests checks the pause between attempts to keep a server's session open.
func TestHowLongAServerRests(t *testing.T) {
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{nil, 250 * time.Millisecond}, {errors.New("refused"), 250 * time.Millisecond},
		{&unreachable{why: errors.New("refused"), wait: time.Minute}, time.Minute},
		{&unreachable{why: errors.New("refused"), wait: time.Millisecond}, 250 * time.Millisecond},
		{&unreachable{why: &AuthError{Why: "no", Login: "h"}, wait: 50 * time.Millisecond}, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			(&host{ctx: t.Context(), limits: defaultLimits()}).pause(c.err)
			if took := time.Since(began); took != c.want {
				t.Errorf("after %v it rests for %s, want %s", c.err, took, c.want)
			}
		})
	}
}

// TestWhenATokenIsRenewed checks that a token is replaced 30 s before its end, and one that lives for less than two
// minutes in the last quarter of its life.
func TestWhenATokenIsRenewed(t *testing.T) {
	for life, at := range map[time.Duration]time.Duration{
		time.Hour: time.Hour - 30*time.Second, 2 * time.Minute: 90 * time.Second, time.Minute: 45 * time.Second,
		4 * time.Second: 3 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			given := time.Now()
			time.Sleep(at)
			if lapsing(given.Add(life), given) {
				t.Errorf("a token for %s lapses at %s", life, at)
			}
			time.Sleep(time.Nanosecond)
			if !lapsing(given.Add(life), given) || lapsing(time.Time{}, given) {
				t.Errorf("a token for %s does not lapse after %s, or one without an end does", life, at)
			}
		})
	}
}

// A shelf is a LoginStore of one login, which another worker may be renewing.
type shelf struct {
	LoginStore
	key []byte

	mu    sync.Mutex
	row   mcpdef.Login // without a revision: there is none
	reads []time.Duration
	began time.Time
	fails bool
}

func (s *shelf) put(t *testing.T, access, url string, expiry time.Time) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := login{URL: url, Access: access, Refresh: "refresh", Given: time.Now(), Expiry: expiry}
	sealed, err := l.seal(s.key, "h")
	if err != nil {
		t.Fatal(err)
	}
	s.row = mcpdef.Login{Server: "h", Revision: s.row.Revision + 1, Sealed: sealed, Expires: expiry, Renewable: true}
}

func (s *shelf) MCPLogin(context.Context, string) (mcpdef.Login, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, time.Since(s.began))
	switch {
	case s.fails:
		return mcpdef.Login{}, errors.New("the database is away")
	case s.row.Revision == 0:
		return mcpdef.Login{}, fmt.Errorf("of %s: %w", s.row.Server, turnkeeper.ErrNotFound)
	}
	return s.row, nil
}

func (s *shelf) ClaimMCPLogin(context.Context, string, int64, string, time.Duration) (bool, error) {
	return false, nil // the other worker has it
}

// TestALoginIsReadAgain checks that a login that was replaced, removed or bound to another address while it is in use
// counts within 5 s, that one that cannot be read is used on, and that another worker's renewal is waited for, up to 30
// s.
func TestALoginIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{key: make([]byte, KeyBytes), began: time.Now()}
		k := newTokenCache(Server{Name: "h", URL: "http://h", OAuth: &OAuth{}}, Access{Key: s.key, Logins: s})
		want := func(what, token string) {
			t.Helper()
			got, err := k.token(t.Context())
			if asks := waitsForLogin(err); got != token || asks != (token == "") {
				t.Errorf("%s: %q, %v", what, got, err)
			}
		}
		want("without a login", "")
		s.put(t, "one", "http://h", time.Time{})
		want("a new login", "one")
		s.put(t, "two", "http://h", time.Time{})
		time.Sleep(5*time.Second - 1)
		want("replaced, before it is read", "one")
		time.Sleep(time.Nanosecond)
		want("replaced", "two")
		s.mu.Lock()
		s.fails = true
		s.mu.Unlock()
		time.Sleep(time.Hour)
		want("the database is away", "two")
		s.mu.Lock()
		s.fails, s.row = false, mcpdef.Login{}
		s.mu.Unlock()
		want("removed", "")
		s.put(t, "three", "http://other", time.Time{})
		want("for another address", "")
		s.put(t, "four", "http://h", time.Time{})
		want("again", "four")
	})
	for _, ends := range []time.Duration{10 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := &shelf{key: make([]byte, KeyBytes), began: time.Now()}
			k := newTokenCache(Server{Name: "h", URL: "http://h", OAuth: &OAuth{}}, Access{Key: s.key, Logins: s})
			s.put(t, "old", "http://h", time.Now().Add(time.Second))
			time.Sleep(2 * time.Second)
			s.began = time.Now()
			time.AfterFunc(ends, func() { s.put(t, "new", "http://h", time.Time{}) })
			got, err := k.token(t.Context())
			took := time.Since(s.began)
			inTime := got == "new" && took <= ends+100*time.Millisecond
			if ends < 30*time.Second && !inTime || ends > 30*time.Second && (err == nil || took != 30*time.Second) {
				t.Errorf("a renewal of %s: %q, %v after %s", ends, got, err, took)
			}
			if !slices.Contains(s.reads, 100*time.Millisecond) {
				t.Errorf("the login was read at %v", s.reads)
			}
			time.Sleep(ends)
		})
	}
}
