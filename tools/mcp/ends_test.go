package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnkeeper/internal/endtest"
	"turnkeeper/tools/mcp"
)

// TestRequestsEndWithTheirCaller checks that each request to a server, or to its authorization server, ends when the
// caller's context ends.
func TestRequestsEndWithTheirCaller(t *testing.T) {
	t.Parallel()
	const resource, describe = "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"
	logins := func(t *testing.T, a *authority) *memLogins {
		logins := newMemLogins()
		logIn(t, a, a.server(mcp.GrantAuthorizationCode), logins)
		return logins
	}
	none := func(*testing.T, *authority) *memLogins { return newMemLogins() }
	probe := func(ctx context.Context, a *authority, access mcp.Access) error {
		_, err := mcp.Probe(ctx, a.server(mcp.GrantClientCredentials), access, nil)
		return err
	}
	login := func(ctx context.Context, a *authority, access mcp.Access) error {
		s := a.server(mcp.GrantAuthorizationCode)
		s.OAuth.ClientID, s.OAuth.ClientSecret = "", ""
		_, _, err := mcp.Login(ctx, s, access, a.person())
		return err
	}
	logout := func(ctx context.Context, a *authority, access mcp.Access) error {
		_, told, err := mcp.Logout(ctx, a.server(mcp.GrantAuthorizationCode), access)
		if err != nil { // the login is forgotten in any case
			return err
		}
		return told
	}
	for _, c := range []struct {
		does    string
		hangs   string
		before  func(*testing.T, *authority) *memLogins
		request func(context.Context, *authority, mcp.Access) error
	}{
		{"a probe", "/mcp", none, probe}, {"a probe", resource, none, probe}, {"a probe", describe, none, probe},
		{"a probe", "/token", none, probe},
		{"a login", "/mcp", none, login}, {"a login", resource, none, login}, {"a login", describe, none, login},
		{"a login", "/register", none, login}, {"a login", "/token", none, login},
		{"a logout", resource, logins, logout}, {"a logout", describe, logins, logout}, {"a logout", "/revoke",
			logins, logout},
	} {
		t.Run(c.does+" "+c.hangs, func(t *testing.T) {
			endtest.Each(t, func(t *testing.T, h *endtest.Hang) {
				a := newAuthority(t)
				access := mcp.Access{Key: loginKey, Logins: c.before(t, a)}
				served := a.Config.Handler
				a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == c.hangs {
						h.ServeHTTP(w, r)
						return
					}
					served.ServeHTTP(w, r)
				})
				err := h.Check(t, func(ctx context.Context) error { return c.request(ctx, a, access) })
				if text := fmt.Sprint(err); strings.Contains(text, "deadline") || strings.Contains(text, "Timeout") {
					t.Errorf("it ended with a timeout of its own: %s", text)
				}
			})
		})
	}
}
