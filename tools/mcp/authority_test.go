package mcp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/tools/mcp"
	"turnkeeper/tools/mcp/mcpdef"
)

// An authority is an authorization server, together with an MCP server that
// accepts its tokens. Everything secret that it issues contains a text that
// marks it as a secret.
type authority struct {
	*httptest.Server
	t     *testing.T
	mcp   *hostileHTTP
	lines *lines

	mu       sync.Mutex
	made     int
	life     int                 // of access tokens, in seconds
	needs    map[string][]string // required scopes, by method of the protocol
	grants   []string            // scopes that may be granted; nil: all
	deaf     bool                // the MCP server accepts no token
	access   map[string][]string // scopes of valid access tokens, by token
	refresh  map[string]bool     // false: used
	codes    map[string]url.Values
	asked    []url.Values // requests to the token endpoint
	visits   []url.Values // requests to the login page
	clients  []string     // registration requests
	revoked  []string
	hits     int                          // requests to the MCP server
	before   func(url.Values)             // called before the token endpoint answers
	answer   http.HandlerFunc             // replaces the token endpoint; nil: not replaced
	metadata func(map[string]any)         // changes the authorization server's metadata
	secrets  []string                     // all secrets issued
	noPRM    bool                         // the MCP server has no resource metadata
	verify   func(form url.Values) string // returns why a client is refused; empty: it is not
}

func newAuthority(t *testing.T) *authority {
	a := &authority{
		t: t, life: 3600, needs: map[string][]string{}, access: map[string][]string{}, refresh: map[string]bool{},
		codes: map[string]url.Values{},
		mcp:   &hostileHTTP{hostile: newHostile(t.TempDir(), "http"), refusal: http.StatusNotFound},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", a.resource)
	mux.HandleFunc("/.well-known/oauth-authorization-server", a.describe)
	mux.HandleFunc("/register", a.register)
	mux.HandleFunc("/authorize", a.authorize)
	mux.HandleFunc("POST /token", a.token)
	mux.HandleFunc("POST /revoke", a.revoke)
	mux.HandleFunc("/mcp", a.serve)
	a.lines = &lines{open: map[net.Conn]bool{}}
	a.Server = httptest.NewUnstartedServer(mux)
	a.Config.ConnState = a.lines.note
	a.Start()
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// do calls f with the lock held, to change or read the running authority.
func (a *authority) do(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (a *authority) resource(w http.ResponseWriter, _ *http.Request) {
	if a.noPRM {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	say(w, http.StatusOK, object{"resource": a.URL + "/mcp", "authorization_servers": []string{a.URL}})
}

func (a *authority) describe(w http.ResponseWriter, _ *http.Request) {
	said := object{
		"issuer": a.URL, "authorization_endpoint": a.URL + "/authorize", "token_endpoint": a.URL + "/token",
		"registration_endpoint": a.URL + "/register", "revocation_endpoint": a.URL + "/revoke",
		"code_challenge_methods_supported": []string{"S256"}, "scopes_supported": []string{"offline_access"},
		"response_types_supported": []string{"code"},
	}
	if a.metadata != nil {
		a.metadata(said)
	}
	say(w, http.StatusOK, said)
}

func (a *authority) register(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clients = append(a.clients, string(body))
	say(w, http.StatusCreated, object{"client_id": "registered", "token_endpoint_auth_method": "none"})
}

// authorize is the login page. It redirects at once, without asking the person.
func (a *authority) authorize(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := r.URL.Query()
	a.visits = append(a.visits, asked)
	code := a.secret("code")
	a.codes[code] = asked
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+url.Values{"code": {code},
		"state": {asked.Get("state")}}.Encode(), http.StatusFound)
}

// secret returns a new secret. The caller holds the lock.
func (a *authority) secret(kind string) string {
	a.made++
	text := fmt.Sprintf("hush-%s-%d-%x", kind, a.made, sha256.Sum256([]byte(fmt.Sprint(a.URL, a.made))))
	a.secrets = append(a.secrets, text)
	return text
}

func (a *authority) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	a.mu.Lock()
	a.asked = append(a.asked, r.PostForm)
	before, answer := a.before, a.answer
	a.mu.Unlock()
	if before != nil {
		before(r.PostForm)
	}
	if answer != nil {
		answer(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if id, secret, ok := r.BasicAuth(); ok {
		r.PostForm.Set("client_id", id)
		r.PostForm.Set("client_secret", secret)
	}
	scopes, refusal := a.grant(r.PostForm)
	if refusal != "" {
		say(w, http.StatusBadRequest, object{"error": refusal, "error_description": "it says no"})
		return
	}
	if a.grants != nil {
		scopes = slices.DeleteFunc(scopes, func(s string) bool { return !slices.Contains(a.grants, s) })
	}
	access := a.secret("access")
	a.access[access] = scopes
	said := object{"access_token": access, "token_type": "Bearer", "expires_in": a.life,
		"scope": strings.Join(scopes, " ")}
	if r.PostForm.Get("grant_type") != "client_credentials" {
		refresh := a.secret("refresh")
		a.refresh[refresh] = true
		said["refresh_token"] = refresh
	}
	say(w, http.StatusOK, said)
}

// grant returns the scopes for a token request, or the error code that refuses
// it.
func (a *authority) grant(form url.Values) (scopes []string, refusal string) {
	if form.Get("resource") != a.URL+"/mcp" {
		return nil, "invalid_target"
	}
	switch form.Get("grant_type") {
	case "client_credentials":
		if a.verify != nil {
			return strings.Fields(form.Get("scope")), a.verify(form)
		}
		if form.Get("client_id") != "robot" || form.Get("client_secret") != robotSecret {
			return nil, "invalid_client"
		}
		return strings.Fields(form.Get("scope")), ""
	case "authorization_code":
		asked := a.codes[form.Get("code")]
		delete(a.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if asked == nil || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
			return nil, "invalid_grant"
		}
		return strings.Fields(asked.Get("scope")), ""
	case "refresh_token":
		valid, known := a.refresh[form.Get("refresh_token")]
		if !known || !valid { // a used refresh token comes again: it may be stolen
			clear(a.refresh)
			clear(a.access)
			return nil, "invalid_grant"
		}
		a.refresh[form.Get("refresh_token")] = false
		return []string{"basic"}, ""
	}
	return nil, "unsupported_grant_type"
}

const robotSecret = "hush-robot-secret"

func (a *authority) revoke(_ http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked = append(a.revoked, r.PostForm.Get("token"))
}

// serve is the handler of the MCP server.
func (a *authority) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var m message
	_ = json.Unmarshal(body, &m)
	a.mu.Lock()
	a.hits++
	scopes, known := a.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	needs, deaf := a.needs[m.Method], a.deaf
	a.mu.Unlock()
	challenge := `Bearer resource_metadata="` + a.URL + `/.well-known/oauth-protected-resource/mcp", `
	if a.noPRM {
		challenge = "Bearer "
	}
	switch {
	case !known || deaf:
		w.Header().Set("WWW-Authenticate", challenge+`scope="basic"`)
		w.WriteHeader(http.StatusUnauthorized)
	case slices.ContainsFunc(needs, func(s string) bool { return !slices.Contains(scopes, s) }):
		w.Header().Set("WWW-Authenticate", challenge+`error="insufficient_scope", scope="`+strings.Join(needs, " ")+`"`)
		w.WriteHeader(http.StatusForbidden)
	default:
		a.mcp.ServeHTTP(w, r)
	}
}

// requests returns the token requests with that grant type.
func (a *authority) requests(grant string) (found []url.Values) {
	a.do(func() {
		for _, form := range a.asked {
			if form.Get("grant_type") == grant {
				found = append(found, form)
			}
		}
	})
	return found
}

// server returns the settings for the MCP server with the grant.
func (a *authority) server(grant mcp.Grant) mcp.Server {
	s := mcp.Server{Name: "h", URL: a.URL + "/mcp", ConnectTimeout: patience, OAuth: &mcp.OAuth{Grant: grant}}
	if grant == mcp.GrantClientCredentials {
		s.OAuth.ClientID, s.OAuth.ClientSecret = "robot", robotSecret
	}
	return s
}

// person returns a Person who logs in without interaction.
func (a *authority) person() mcp.Person { return a.personWith(http.DefaultTransport) }

// personWith returns a Person with another browser.
func (a *authority) personWith(browser http.RoundTripper) mcp.Person {
	return mcp.Person{Redirect: "http://127.0.0.1:9/callback", Visit: func(ctx context.Context,
		address string) (*url.URL, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return nil, err
		}
		res, err := browser.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		return res.Location()
	}}
}

// memLogins stores logins in memory.
type memLogins struct {
	mu      sync.Mutex
	row     mcpdef.Login // Revision 0: none
	next    int64
	claim   string
	reads   int
	refused chan struct{} // receives a value for each refused claim
	broken  error         // returned by every read
	away    int           // number of next renewals that fail to be stored
}

func newMemLogins() *memLogins { return &memLogins{refused: make(chan struct{}, 1000)} }

func (m *memLogins) MCPLogin(context.Context, string) (mcpdef.Login, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.broken != nil {
		return mcpdef.Login{}, m.broken
	}
	if m.row.Revision == 0 {
		return mcpdef.Login{}, fmt.Errorf("no login: %w", turnkeeper.ErrNotFound)
	}
	return m.row, nil
}

func (m *memLogins) put(l mcpdef.Login) {
	m.next++
	l.Revision = m.next
	m.row, m.claim = l, ""
}

func (m *memLogins) SaveMCPLogin(_ context.Context, l mcpdef.Login) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(l)
	return nil
}

func (m *memLogins) ClaimMCPLogin(_ context.Context, _ string, revision int64, claim string,
	_ time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claim != "" || m.row.Revision != revision || m.row.Lapsed != "" {
		m.refused <- struct{}{}
		return false, nil
	}
	m.claim = claim
	return true, nil
}

func (m *memLogins) RenewMCPLogin(_ context.Context, l mcpdef.Login, claim string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away > 0 {
		m.away--
		return false, errors.New("the database is away")
	}
	if m.claim != claim {
		return false, nil
	}
	m.put(l)
	return true, nil
}

func (m *memLogins) ReleaseMCPLogin(_ context.Context, _, claim, lapsed string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claim == claim {
		m.claim, m.row.Lapsed = "", lapsed
	}
	return nil
}

func (m *memLogins) WantMCPScopes(_ context.Context, _ string, scopes []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.row.Wanted = scopes
	return nil
}

func (m *memLogins) ForgetMCPLogin(context.Context, string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.row.Revision != 0
	m.row = mcpdef.Login{}
	return was, nil
}

func (m *memLogins) kept() mcpdef.Login {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.row
}

// newSecureAuthority returns the address of an authority with an untrusted TLS
// certificate.
func newSecureAuthority(t *testing.T) string {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = zap.NewStdLog(zap.NewNop()) // drops the errors of refused handshakes
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func turnLane(i int) turnkeeper.Lane { return turnkeeper.Lane(fmt.Sprintf("lane-%d", i)) }
