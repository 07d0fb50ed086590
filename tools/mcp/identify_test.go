package mcp_test

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"

	"turnkeeper/tools/mcp"
)

// TestHowAClientIsIdentified checks that the requests for a token, for its renewal and for its revocation all name the
// client, with its secret as the authorization server takes it.
func TestHowAClientIsIdentified(t *testing.T) {
	t.Parallel()
	const id, secret = "desk & co", "hush:desk/secret"
	for name, c := range map[string]struct {
		methods    []string
		id, secret string
		want       string // the style, the id and the secret
		login      string // at the login, if it differs: the SDK tries the header first
	}{
		"a secret, by default":     {nil, id, secret, "header " + id + " " + secret, ""},
		"a secret in the header":   {[]string{"client_secret_basic"}, id, secret, "header " + id + " " + secret, ""},
		"a secret in the form":     {[]string{"client_secret_post"}, id, secret, "form " + id + " " + secret, ""},
		"no secret":                {[]string{"none"}, id, "", "form " + id + " ", "header " + id + " "},
		"a client that registered": {[]string{"none"}, "", "", "form registered ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			a.metadata = func(said map[string]any) {
				if c.methods != nil {
					said["token_endpoint_auth_methods_supported"] = c.methods
				}
			}
			var mu sync.Mutex
			said := map[string][]string{} // by path, or grant
			served := a.Config.Handler
			a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/token" || r.URL.Path == "/revoke" {
					_ = r.ParseForm()
					who := "form " + r.PostForm.Get("client_id") + " " + r.PostForm.Get("client_secret")
					if user, password, ok := r.BasicAuth(); ok {
						user, _ = url.QueryUnescape(user)
						password, _ = url.QueryUnescape(password)
						who = "header " + user + " " + password
					}
					mu.Lock()
					what := r.URL.Path + " " + r.PostForm.Get("grant_type") + r.PostForm.Get("token_type_hint")
					said[what] = append(said[what], who)
					mu.Unlock()
				}
				served.ServeHTTP(w, r)
			})
			logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
			s.OAuth.ClientID, s.OAuth.ClientSecret = c.id, c.secret
			logIn(t, a, s, logins)
			w := newWorker(t, s, logins)
			w.succeeds()
			a.do(func() { clear(a.access) })
			w.succeeds()
			if was, told, err := mcp.Logout(t.Context(), s, mcp.Access{Logins: logins, Key: loginKey}); !was ||
				told != nil || err != nil {
				t.Errorf("the logout: %t, %v, %v", was, told, err)
			}
			for _, what := range []string{"/token authorization_code", "/token refresh_token", "/revoke refresh_token",
				"/revoke access_token"} {
				want := c.want
				if what == "/token authorization_code" {
					want = cmp.Or(c.login, c.want)
				}
				if got := said[what]; !slices.Equal(got, []string{want}) {
					t.Errorf("%s: identified by %q, want %q", what, got, want)
				}
			}
		})
	}
}
