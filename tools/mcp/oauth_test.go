package mcp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

// scopesOf returns the scopes of a request, sorted.
func scopesOf(form url.Values) string {
	scopes := strings.Fields(form.Get("scope"))
	slices.Sort(scopes)
	return strings.Join(scopes, " ")
}

var loginKey = []byte("0123456789abcdef0123456789abcdef")

// A worker is a client with its log and the secrets that it learned.
type worker struct {
	*mcp.Client
	t    *testing.T
	logs *observer.ObservedLogs
	said []string // texts of the calls

	mu     sync.Mutex
	learnt map[string]bool
}

func (w *worker) learn(secret string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.learnt[secret] = true
}

func newWorker(t *testing.T, s mcp.Server, logins mcp.LoginStore) *worker {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	w := &worker{t: t, logs: logs, learnt: map[string]bool{}}
	access := mcp.Access{Key: loginKey, Learn: w.learn}
	if logins != nil {
		access.Logins = logins
	}
	w.Client = mcp.New(mcp.Config{Servers: []mcp.Server{s}, Log: zap.New(core), Access: access})
	t.Cleanup(w.Close)
	return w
}

func (w *worker) call(timeout time.Duration) tools.RunResult {
	return w.callWithin(context.Background(), timeout)
}

func (w *worker) callWithin(ctx context.Context, timeout time.Duration) tools.RunResult {
	ending := tools.Execute(ctx, w.Tool("h", "echo"), tools.Call{Lane: "lane", Arguments: []byte(`{"text":"x"}`)},
		tools.ExecuteOptions{Timeout: timeout})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, ending.Result.Text)
	return ending
}

func (w *worker) succeeds() {
	w.t.Helper()
	if got := w.call(patience); got.Outcome != tools.Succeeded {
		w.t.Errorf("%s: %s", got.Outcome, got.Result.Text)
	}
}

// fails makes a call that must fail with all of the texts in its error.
func (w *worker) fails(texts ...string) {
	w.t.Helper()
	got := w.call(patience)
	for _, text := range append(texts, "Nothing was run") {
		if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, text) {
			w.t.Errorf("%s: %q, want %q in it", got.Outcome, got.Result.Text, text)
		}
	}
}

// quiet checks that no secret was logged or is in a text of a call.
func (w *worker) quiet() {
	w.t.Helper()
	var all []string
	for _, entry := range w.logs.All() {
		all = append(all, fmt.Sprint(entry.Message, entry.ContextMap()))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range append(all, w.said...) {
		if strings.Contains(text, "hush") {
			w.t.Errorf("a secret shows: %s", text)
		}
	}
}

func TestClientCredentials(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	w := newWorker(t, a.server(mcp.GrantClientCredentials), nil)
	w.succeeds()
	w.succeeds()
	asked := a.requests("client_credentials")
	if len(asked) != 1 || scopesOf(asked[0]) != "basic" || asked[0].Get("resource") != a.URL+"/mcp" {
		t.Errorf("tokens were asked for: %v", asked)
	}
	a.do(func() { clear(a.access) }) // as if they were revoked
	w.succeeds()
	if n := len(a.requests("client_credentials")); n != 2 {
		t.Errorf("%d tokens", n)
	}
	a.do(func() { a.life = -1; clear(a.access) })
	w.succeeds() // with a token that has expired when it is issued
	before := len(a.requests("client_credentials"))
	w.succeeds()
	if n := len(a.requests("client_credentials")); n == before {
		t.Error("a token that has expired was not replaced")
	}
	for _, secret := range a.secrets {
		if !w.learnt[secret] {
			t.Errorf("no masker would know %.20s…", secret)
		}
	}
	w.quiet()
}

func TestTheCallsOfAWorkerShareOneToken(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	s := a.server(mcp.GrantClientCredentials)
	s.SessionPerLane = true
	w := newWorker(t, s, nil)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			got := tools.Execute(t.Context(), w.Tool("h", "echo"), tools.Call{Lane: turnLane(i),
				Arguments: []byte(`{"text":"x"}`)}, tools.ExecuteOptions{Timeout: patience})
			if got.Outcome != tools.Succeeded {
				t.Errorf("%s: %s", got.Outcome, got.Result.Text)
			}
		})
	}
	group.Wait()
	if n := len(a.requests("client_credentials")); n != 1 {
		t.Errorf("%d tokens were asked for", n)
	}
}

func TestAKeySignsForTheAuthorizationServerAlone(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := a.server(mcp.GrantClientCredentials)
	s.OAuth.ClientSecret, s.OAuth.PrivateKey, s.OAuth.KeyID = "", key, "k1"
	a.verify = func(form url.Values) string {
		token, err := jwt.Parse(form.Get("client_assertion"), func(*jwt.Token) (any, error) {
			return &key.PublicKey, nil
		},
			jwt.WithAudience(a.URL), jwt.WithIssuer("robot"), jwt.WithSubject("robot"), jwt.WithExpirationRequired(),
			jwt.WithValidMethods([]string{"ES256"}))
		if err != nil || token.Header["kid"] != "k1" || form.Get("client_secret") != "" {
			return "invalid_client"
		}
		return ""
	}
	newWorker(t, s, nil).succeeds()
}

func TestScopesAreAskedForOnce(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.needs["tools/call"] = []string{"write"}
	w := newWorker(t, a.server(mcp.GrantClientCredentials), nil)
	w.succeeds()
	asked := a.requests("client_credentials")
	if len(asked) != 2 || scopesOf(asked[1]) != "basic write" {
		t.Errorf("tokens were asked for: %v", asked)
	}
	a.do(func() { a.needs["tools/call"] = []string{"admin"}; a.grants = []string{"basic", "write"} })
	w.fails(`"admin"`, "given one without")
	w.fails(`"admin"`)
	if n := len(a.requests("client_credentials")); n != 3 {
		t.Errorf("%d tokens were asked for: what is not given must not be asked for again", n)
	}
}

func TestATokenThatIsRefusedEndsTheCall(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.deaf = true // as for a wrong audience
	w := newWorker(t, a.server(mcp.GrantClientCredentials), nil)
	w.fails("does not take the token")
	if n := len(a.requests("client_credentials")); n > 4 {
		t.Errorf("%d tokens were asked for", n)
	}
	w.quiet()
}

func TestAClientThatIsNotKnown(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	s := a.server(mcp.GrantClientCredentials)
	s.OAuth.ClientSecret = "hush-wrong-secret"
	w := newWorker(t, s, nil)
	w.fails("invalid_client", "it says no")
	a.answer = func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<html>hush-robot-secret is wrong</html>", http.StatusInternalServerError)
	}
	other := newWorker(t, s, nil)
	other.fails("HTTP status 500")
	w.quiet()
	other.quiet()
}

func TestATokenEndpointThatHangsHoldsUpNoMoreThanItsCall(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hangs := make(chan struct{}, 100)
	a.before = func(url.Values) { hangs <- struct{}{}; <-release }
	w := newWorker(t, a.server(mcp.GrantClientCredentials), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan tools.RunResult, 1)
	go func() { done <- w.callWithin(ctx, patience) }()
	<-hangs
	cancel()
	if got := <-done; got.Outcome != tools.Cancelled {
		t.Errorf("%s: %s", got.Outcome, got.Result.Text)
	}
}

func logIn(t *testing.T, a *authority, s mcp.Server, logins mcp.LoginStore) {
	t.Helper()
	l, n, err := mcp.Login(t.Context(), s, mcp.Access{Logins: logins, Key: loginKey}, a.person())
	if err != nil || n == 0 || l.Server != "h" {
		t.Fatalf("the login: %+v, %d tools, %v", l, n, err)
	}
}

func TestALoginIsForAllWorkers(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	one, two := newWorker(t, s, logins), newWorker(t, s, logins)
	one.fails(`run "turnctl mcp login h"`, "nobody is logged in")
	if a.hits != 0 {
		t.Error("the server was asked without a login")
	}
	logIn(t, a, s, logins)
	if len(a.clients) != 1 || !strings.Contains(a.clients[0], `"refresh_token"`) ||
		!strings.Contains(a.clients[0], `"none"`) {
		t.Errorf("registered: %v", a.clients)
	}
	asked := a.visits[0]
	if asked.Get("resource") != a.URL+"/mcp" || asked.Get("code_challenge_method") != "S256" ||
		scopesOf(asked) != "basic offline_access" {
		t.Errorf("the login asks for %v", asked)
	}
	two.succeeds()
	await(t, "the first worker finds the login", func() bool { return one.call(patience).Outcome == tools.Succeeded })
	sealed := string(logins.kept().Sealed)
	for _, secret := range a.secrets {
		if strings.Contains(sealed, secret) {
			t.Error("a token is kept in the open")
		}
		if !strings.Contains(secret, "code") && !two.learnt[secret] {
			t.Errorf("no masker would know %.20s…", secret)
		}
	}
	one.quiet()
	two.quiet()
}

// A refresh token may be used only once: two workers whose token has expired
// must not both use it.
func TestOneWorkerRenewsForAll(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	a.life = -1
	logIn(t, a, s, logins)
	a.do(func() {
		a.life = 3600
		// The first renewal continues only after another worker was refused a claim, or
		// has also started a renewal.
		twice := make(chan struct{})
		again := sync.OnceFunc(func() { close(twice) })
		var renewals atomic.Int32
		a.before = func(form url.Values) {
			if form.Get("grant_type") != "refresh_token" {
				return
			}
			if renewals.Add(1) > 1 {
				again()
				return
			}
			select {
			case <-logins.refused:
			case <-twice:
			}
		}
	})
	one, two := newWorker(t, s, logins), newWorker(t, s, logins)
	var group sync.WaitGroup
	for _, w := range []*worker{one, two, one, two, one, two} {
		group.Go(w.succeeds)
	}
	group.Wait()
	if n := len(a.requests("refresh_token")); n != 1 {
		t.Errorf("the login was renewed %d times", n)
	}
	if n := len(a.requests("refresh_token")); n > 0 && a.requests("refresh_token")[0].Get("resource") != a.URL+"/mcp" {
		t.Error("a renewal does not say what for")
	}
	one.quiet()
	two.quiet()
}

// atWork returns a worker that has a stored login and has used it.
func atWork(t *testing.T) (*authority, *memLogins, *worker) {
	t.Helper()
	a := newAuthority(t)
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	logIn(t, a, s, logins)
	w := newWorker(t, s, logins)
	w.succeeds()
	return a, logins, w
}

func TestARefusedTokenIsRenewed(t *testing.T) {
	t.Parallel()
	a, _, w := atWork(t)
	a.do(func() { clear(a.access) })
	w.succeeds()
	a.do(func() { clear(a.access) })
	w.succeeds() // with the refresh token of the last renewal
	if n := len(a.requests("refresh_token")); n != 2 {
		t.Errorf("the login was renewed %d times", n)
	}
	a.do(func() { a.deaf = true })
	w.fails("does not take the token")
	if n := len(a.requests("refresh_token")); n > 6 {
		t.Errorf("the login was renewed %d times for a server that takes no token", n)
	}
	w.quiet()
}

func TestALoginThatEnds(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	logIn(t, a, s, logins)
	one, two := newWorker(t, s, logins), newWorker(t, s, logins)
	one.succeeds()
	a.do(func() { clear(a.access); clear(a.refresh) })
	one.fails(`run "turnctl mcp login h"`, "invalid_grant", "the login has ended")
	two.fails(`run "turnctl mcp login h"`, "invalid_grant")
	if n := len(a.requests("refresh_token")); n != 1 {
		t.Errorf("what has ended was renewed %d times", n)
	}
	logIn(t, a, s, logins)
	await(t, "the workers find the new login", func() bool {
		return one.call(patience).Outcome == tools.Succeeded && two.call(patience).Outcome == tools.Succeeded
	})
}

// An authorization server that is down does not end a login.
func TestARenewalThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	a, logins, w := atWork(t)
	a.do(func() {
		clear(a.access)
		a.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	})
	w.fails("HTTP status 502")
	if why := logins.kept().Lapsed; why != "" {
		t.Errorf("the login has lapsed: %s", why)
	}
	a.do(func() { a.answer = nil })
	w.succeeds()
}

// The result of a renewal is stored, even if the database fails at first: the
// old refresh token cannot be used again.
func TestARenewalIsKeptAfterAMoment(t *testing.T) {
	t.Parallel()
	a, logins, w := atWork(t)
	a.do(func() { clear(a.access) })
	logins.mu.Lock()
	logins.away = 2
	logins.mu.Unlock()
	w.succeeds()
	if n := len(a.requests("refresh_token")); n != 1 {
		t.Errorf("the login was renewed %d times", n)
	}
}

// A renewal is stored even if its call has ended: the refresh token is used up.
func TestARenewalOutlivesItsCall(t *testing.T) {
	t.Parallel()
	a, logins, w := atWork(t)
	under, release := make(chan struct{}), make(chan struct{})
	a.do(func() {
		clear(a.access)
		a.before = func(url.Values) { close(under); <-release }
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan tools.RunResult, 1)
	go func() {
		done <- tools.Execute(ctx, w.Tool("h", "echo"), tools.Call{Lane: "lane", Arguments: []byte(`{}`)},
			tools.ExecuteOptions{Timeout: patience})
	}()
	<-under
	cancel()
	<-done
	before := logins.kept().Revision
	a.do(func() { a.before = nil })
	close(release)
	await(t, "the renewal is kept", func() bool { return logins.kept().Revision > before })
	w.succeeds()
	if n := len(a.requests("refresh_token")); n != 1 {
		t.Errorf("the login was renewed %d times", n)
	}
}

func TestAWorkerAsksNobodyForMoreScopes(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.needs["tools/call"] = []string{"write"}
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	logIn(t, a, s, logins)
	w := newWorker(t, s, logins)
	w.fails(`run "turnctl mcp login h"`, `"write"`)
	if !slices.Equal(logins.kept().Wanted, []string{"write"}) {
		t.Errorf("noted for the next login: %v", logins.kept().Wanted)
	}
	logIn(t, a, s, logins)
	if got := scopesOf(a.visits[len(a.visits)-1]); got != "basic offline_access write" {
		t.Errorf("the next login asks for %q", got)
	}
	w.succeeds()
}

func TestALoginIsBoundToItsServerAndKey(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	logIn(t, a, s, logins)
	moved := s
	moved.URL += "?tenant=2"
	newWorker(t, moved, logins).fails("another address", "turnctl mcp login h")
	renamed := s
	renamed.Name = "other"
	other := newWorker(t, renamed, logins)
	got := tools.Execute(t.Context(), other.Tool("other", "echo"), tools.Call{Arguments: []byte(`{}`)},
		tools.ExecuteOptions{Timeout: patience})
	if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "mcp_login_key") {
		t.Errorf("a login of another server: %s: %s", got.Outcome, got.Result.Text)
	}
	access := mcp.Access{Logins: logins, Key: []byte(strings.Repeat("k", mcp.KeyBytes))}
	_, err := mcp.Probe(t.Context(), s, access, nil)
	if auth, ok := errors.AsType[*mcp.AuthError](err); !ok || auth.Login != "h" {
		t.Errorf("another key: %v", err)
	}
	if a.hits > 10 || len(a.requests("refresh_token")) > 0 {
		t.Error("the tokens were used")
	}
}

func TestWorkersGoOnWithWhatTheyHaveWhileNothingCanBeRead(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	logIn(t, a, s, logins)
	w := newWorker(t, s, logins)
	w.succeeds()
	logins.mu.Lock()
	logins.broken = errors.New("the database is away")
	logins.mu.Unlock()
	mcp.Forget(w.Client, "h") // like after five seconds
	w.succeeds()
	newWorker(t, s, logins).fails("the database is away")
}

func TestLogout(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
	access := mcp.Access{Logins: logins, Key: loginKey}
	if was, _, err := mcp.Logout(t.Context(), s, access); was || err != nil {
		t.Errorf("nobody was logged in: %t, %v", was, err)
	}
	logIn(t, a, s, logins)
	w := newWorker(t, s, logins)
	w.succeeds()
	was, told, err := mcp.Logout(t.Context(), s, access)
	if !was || told != nil || err != nil || len(a.revoked) != 2 || !strings.Contains(a.revoked[0], "refresh") ||
		!strings.Contains(a.revoked[1], "access") {
		t.Errorf("%t, %v, %v: revoked %v", was, told, err, a.revoked)
	}
	mcp.Forget(w.Client, "h")
	w.fails("nobody is logged in")

	logIn(t, a, s, logins)
	a.metadata = func(said map[string]any) { delete(said, "revocation_endpoint") }
	if was, told, err := mcp.Logout(t.Context(), s, access); !was || told == nil || err != nil ||
		logins.kept().Revision != 0 {
		t.Errorf("%t, %v, %v", was, told, err)
	}
}

func TestLoginsThatFail(t *testing.T) {
	t.Parallel()
	back := func(query string) func(context.Context, string) (*url.URL, error) {
		return func(context.Context, string) (*url.URL, error) {
			return url.Parse("http://127.0.0.1:9/callback?" + query)
		}
	}
	for name, c := range map[string]struct {
		change func(*authority, *mcp.Server, *mcp.Person)
		want   string
	}{
		"the person says no": {func(_ *authority, _ *mcp.Server, p *mcp.Person) {
			p.Visit = back("error=access_denied&error_description=not+now&state=x")
		}, "access_denied: not now"},
		"another login's answer": {func(_ *authority, _ *mcp.Server, p *mcp.Person) {
			p.Visit = back("code=c&state=x")
		}, "state mismatch"},
		"no code": {func(_ *authority, _ *mcp.Server, p *mcp.Person) {
			p.Visit = back("state=x")
		}, "has no code"},
		"another issuer": {func(_ *authority, s *mcp.Server, _ *mcp.Person) {
			s.OAuth.Issuer = "https://login.example.org"
		}, "oauth.issuer"},
		"a page that is not safe": {func(a *authority, _ *mcp.Server, _ *mcp.Person) {
			a.metadata = func(said map[string]any) {
				said["authorization_endpoint"] = "http://login.example.org/authorize"
			}
		}, "HTTPS"},
		"no PKCE": {func(a *authority, _ *mcp.Server, _ *mcp.Person) {
			a.metadata = func(said map[string]any) { delete(said, "code_challenge_methods_supported") }
		}, "PKCE"},
		"an issuer that is another's": {func(a *authority, _ *mcp.Server, _ *mcp.Person) {
			a.metadata = func(said map[string]any) { said["issuer"] = "https://login.example.org" }
		}, "does not match"},
		"a page in place of a token": {func(a *authority, _ *mcp.Server, _ *mcp.Person) {
			a.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<p>hush-code</p>")) }
		}, "the login has failed"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t)
			logins, s, person := newMemLogins(), a.server(mcp.GrantAuthorizationCode), a.person()
			c.change(a, &s, &person)
			visits, visit := 0, person.Visit
			person.Visit = func(ctx context.Context, address string) (*url.URL, error) {
				visits++
				return visit(ctx, address)
			}
			_, _, err := mcp.Login(t.Context(), s, mcp.Access{Logins: logins, Key: loginKey}, person)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") ||
				logins.kept().Revision != 0 {
				t.Errorf("%v, want %q", err, c.want)
			}
			if visits > 1 {
				t.Errorf("the person was sent there %d times", visits)
			}
		})
	}
}

// An old server without resource metadata is its own authorization server, even
// if its issuer has a path.
func TestAServerThatIsItsOwnAuthorizationServer(t *testing.T) {
	t.Parallel()
	for issuer, good := range map[string]bool{"": true, "/oauth": true, "http://login.example.org": false} {
		a := newAuthority(t)
		a.noPRM = true
		a.metadata = func(said map[string]any) {
			said["issuer"] = issuer
			if !strings.HasPrefix(issuer, "http") {
				said["issuer"] = a.URL + issuer
			}
		}
		logins, s := newMemLogins(), a.server(mcp.GrantAuthorizationCode)
		_, _, err := mcp.Login(t.Context(), s, mcp.Access{Logins: logins, Key: loginKey}, a.person())
		if (err == nil) != good {
			t.Errorf("issuer %q: %v", issuer, err)
		}
		if good {
			newWorker(t, s, logins).succeeds()
		}
		w := newWorker(t, a.server(mcp.GrantClientCredentials), nil)
		if got := w.call(patience); (got.Outcome == tools.Succeeded) != good {
			t.Errorf("issuer %q: %s: %s", issuer, got.Outcome, got.Result.Text)
		}
	}
}

// A server names the address of its authorization server. It must not make a
// worker connect to addresses that only the worker can reach.
func TestWhereAuthorizationServersMayBe(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	secure := newSecureAuthority(t)
	for name, c := range map[string]struct {
		server, issuer, address, want string
	}{
		"here, for a server here": {server: "http://localhost:1/mcp", address: a.URL},
		"here, for a server elsewhere": {server: "https://mcp.example.org/mcp", address: secure,
			want: "at a loopback address"},
		// the connection was made
		"here, as the operator says": {server: "https://mcp.example.org/mcp", issuer: secure, address: secure,
			want: "certificate"},
		"without TLS": {server: "https://mcp.example.org/mcp",
			address: "http://login.example.org/", want: "must be https"},
		"without TLS, as the operator says": {server: "https://mcp.example.org/mcp", issuer: "http://10.0.0.1",
			address: "http://10.0.0.1/", want: "must be https"},
		"without TLS, for a server here": {server: "http://localhost:1/mcp", address: "http://login.example.org/",
			want: "must be https"},
		"in a private network, for one here": {server: "http://localhost:1/mcp", address: "https://10.255.255.1/",
			want: "at a private address"},
		"the metadata service, for one abroad": {server: "https://mcp.example.org/mcp",
			address: "https://169.254.169.254/", want: "at a link-local address"},
	} {
		t.Run(name, func(t *testing.T) {
			err := mcp.GetAsAuthClient(t.Context(), mcp.Server{URL: c.server, OAuth: &mcp.OAuth{Issuer: c.issuer}},
				c.address)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestAnAuthorizationServerLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	a, elsewhere := newAuthority(t), newAuthority(t)
	a.answer = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/token", http.StatusTemporaryRedirect)
	}
	w := newWorker(t, a.server(mcp.GrantClientCredentials), nil)
	w.fails("redirect refused")
	if len(elsewhere.asked) > 0 {
		t.Error("the client's secret went elsewhere")
	}
	a.do(func() {
		a.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token":"` + strings.Repeat("x", 2<<20) + `"}`))
		}
	})
	newWorker(t, a.server(mcp.GrantClientCredentials), nil).fails("no token was had")
}
