package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnkeeper/tools/mcp"
	"turnkeeper/tools/mcp/mcpdef"
)

// lines counts the open connections of a server.
type lines struct {
	mu   sync.Mutex
	made int
	open map[net.Conn]bool
}

// note is the http.Server.ConnState of the server.
func (l *lines) note(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		l.made++
		l.open[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(l.open, c)
	}
}

func (l *lines) count() (made, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made, len(l.open)
}

// TestNoConnectionIsLeft checks that logins, logouts, probes and clients close their connections to a server and to its
// authorization server when they end, instead of keeping them until they are idle for long.
func TestNoConnectionIsLeft(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	access := mcp.Access{Logins: logins, Key: loginKey}
	person := a.personWith(&http.Transport{DisableKeepAlives: true})
	for _, c := range []struct {
		what string
		does func()
	}{
		{"a login", func() {
			if _, _, err := mcp.Login(t.Context(), s, access, person); err != nil {
				t.Error(err)
			}
		}},
		{"a login that fails", func() {
			if _, _, err := mcp.Login(t.Context(), s, access, mcp.Person{Redirect: person.Redirect,
				Visit: func(context.Context, string) (*url.URL, error) {
					return nil, errors.New("nobody is there")
				}}); err == nil {
				t.Error("nobody is logged in")
			}
		}},
		{"a probe", func() {
			if _, err := mcp.Probe(t.Context(), s, access, nil); err != nil {
				t.Error(err)
			}
		}},
		{"a client", func() {
			w := newWorker(t, s, logins)
			w.succeeds()
			a.do(func() { clear(a.access) })
			w.succeeds()
			w.Close()
		}},
		{"a client with a secret", func() {
			w := newWorker(t, a.server(mcp.GrantClientCredentials), nil)
			w.succeeds()
			w.Close()
		}},
		{"a logout", func() {
			if was, told, err := mcp.Logout(t.Context(), s, access); !was || told != nil || err != nil {
				t.Error(was, told, err)
			}
		}},
	} {
		before, _ := a.lines.count()
		c.does()
		if made, _ := a.lines.count(); made == before {
			t.Errorf("%s made no connection", c.what)
		}
		await(t, c.what+" closes its connections", func() bool { _, open := a.lines.count(); return open == 0 })
	}
}

// TestWhatIsStoredOfALogin checks each field of a new login, with the settings that decide about it, and of the sealed
// part.
func TestWhatIsStoredOfALogin(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	s.OAuth.ClientID, s.OAuth.ClientSecret, s.OAuth.Scopes = "desk", "hush-desk", []string{"own"}
	if err := logins.SaveMCPLogin(t.Context(), mcpdef.Login{Server: "h", Wanted: []string{"later"},
		Lapsed: "it is over"}); err != nil {
		t.Fatal(err)
	}
	learnt := map[string]bool{}
	began := time.Now()
	row, n, err := mcp.Login(t.Context(), s, mcp.Access{Logins: logins, Key: loginKey, Learn: func(secret string) {
		learnt[secret] = true
	}}, a.person())
	if err != nil || n != len(toolNames) {
		t.Fatalf("%d tools, %v", n, err)
	}
	kept := logins.kept()
	scopes := slices.Sorted(slices.Values(kept.Scopes)) // the client asks for them in any order
	if kept.Server != "h" || !slices.Equal(scopes, []string{"later", "offline_access", "own"}) ||
		kept.Wanted != nil || kept.Lapsed != "" || !kept.Renewable ||
		kept.LoggedInAt.Before(began) || kept.LoggedInAt.After(time.Now()) || !kept.RenewedAt.IsZero() ||
		kept.Expires.Before(began.Add(time.Hour-time.Second)) || kept.Expires.After(time.Now().Add(time.Hour)) {
		t.Errorf("stored: %+v", kept)
	}
	if row.Server != kept.Server || !slices.Equal(row.Scopes, kept.Scopes) || !row.Expires.Equal(kept.Expires) {
		t.Errorf("returned: %+v", row)
	}
	text, err := mcp.LoginIn(loginKey, kept)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"url": s.URL, "resource": s.URL, "endpoint": a.URL + "/token", "metadata": a.URL +
			"/.well-known/oauth-protected-resource/mcp",
		"client_id": "desk", "client_secret": "hush-desk", "style": 2.0,
	} {
		if got[field] != want {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
	}
	for field, begins := range map[string]string{"access_token": "hush-access", "refresh_token": "hush-refresh"} {
		if token, _ := got[field].(string); !strings.HasPrefix(token, begins) || !learnt[token] {
			t.Errorf("%s is %.20s…, learnt %t", field, token, learnt[token])
		}
	}
	for _, field := range []string{"given", "expiry"} {
		at, err := time.Parse(time.RFC3339, got[field].(string))
		if want := map[string]time.Duration{"given": 0, "expiry": time.Hour}[field]; err != nil ||
			at.Sub(began.Add(want)).Abs() > time.Minute {
			t.Errorf("%s is %v", field, got[field])
		}
	}
	if !learnt["hush-desk"] {
		t.Error("no masker would know the client's secret")
	}
}
