package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/storage/operate"
)

// knownSecrets is a store with one token and one session, which counts lookups.
type knownSecrets struct {
	Store
	token   operate.Token
	deleted bool
	lookups int
}

func (s *knownSecrets) find(secret, known string) (operate.Token, error) {
	s.lookups++
	if secret != known || s.deleted {
		return operate.Token{}, turnkeeper.ErrNotFound
	}
	return s.token, nil
}

func (s *knownSecrets) FindToken(_ context.Context, secret string) (operate.Token, error) {
	return s.find(secret, "tk_known")
}

func (s *knownSecrets) FindSession(_ context.Context, secret string) (operate.Token, error) {
	return s.find(secret, "known")
}

func (s *knownSecrets) SignIn(_ context.Context, secret string, _ time.Duration) (operate.Token, string, error) {
	token, err := s.find(secret, "tk_known")
	return token, "known", err
}

func (s *knownSecrets) ask(api http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Host = "localhost"
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, req)
	return w
}

// TestGuessesAreRefusedBeforeTheLookup checks that an unknown secret is refused without a lookup after too many wrong
// guesses from its address.
func TestGuessesAreRefusedBeforeTheLookup(t *testing.T) {
	t.Parallel()
	form := []string{"Content-Type", "application/x-www-form-urlencoded", "Origin", "http://localhost",
		"Sec-Fetch-Site", "same-origin"}
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
	}{
		"token":   {"GET", "/metrics", "", []string{"Authorization", "Bearer tk_known"}},
		"session": {"GET", "/metrics", "", []string{"Cookie", "turnkeeper_session=known"}},
		"sign-in": {"POST", "/sign-in", "token=tk_known", form},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &knownSecrets{token: operate.Token{ID: 1, Scopes: Scopes()}}
				api := New(Config{Store: store, NeedToken: true, Rate: 1}).Handler()
				if w := store.ask(api, "GET", "/metrics", "", "Authorization",
					"Bearer tk_guess"); w.Code != http.StatusUnauthorized {
					t.Fatalf("the first guess: %d %s", w.Code, w.Body)
				}
				before := store.lookups
				if w := store.ask(api, c.method, c.path, c.body, c.headers...); w.Code != http.StatusTooManyRequests ||
					store.lookups != before {
					t.Errorf("a secret not seen before: %d %s, %d lookups", w.Code, w.Body, store.lookups-before)
				}
				<-time.After(time.Second)
				if w := store.ask(api, c.method, c.path, c.body, c.headers...); w.Code >= 400 &&
					w.Code != http.StatusNotFound {
					t.Errorf("a second later: %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// TestASecretThatIsNoLongerValid checks that nothing of a token or a session outlives it: a secret that was valid is a
// guess like any other once it is deleted, and is taken again, without the limit of guesses, once it is valid again.
func TestASecretThatIsNoLongerValid(t *testing.T) {
	t.Parallel()
	for name, header := range map[string][]string{"token": {"Authorization", "Bearer tk_known"},
		"session": {"Cookie", "turnkeeper_session=known"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &knownSecrets{token: operate.Token{ID: 1, Scopes: Scopes()}}
				api := New(Config{Store: store, NeedToken: true, Rate: 1}).Handler()
				for _, step := range []struct {
					deleted bool
					guess   bool // a guess from the same address comes first
					status  int
					looks   int
				}{
					{false, false, http.StatusNotFound, 1},
					{false, true, http.StatusNotFound, 1}, // a known secret is not refused for the guesses of others
					{true, false, http.StatusUnauthorized, 1},
					{true, false, http.StatusTooManyRequests, 0}, // it is a guess now, and the limit is reached
					{false, false, http.StatusTooManyRequests, 0},
					{false, true, http.StatusTooManyRequests, 0},
				} {
					if step.guess {
						store.ask(api, "GET", "/metrics", "", "Authorization", "Bearer tk_guess")
					}
					before := store.lookups
					store.deleted = step.deleted
					if w := store.ask(api, "GET", "/metrics", "", header...); w.Code != step.status ||
						store.lookups-before != step.looks {
						t.Errorf("%+v: answered %d with %d lookups", step, w.Code, store.lookups-before)
					}
					if step.status == http.StatusNotFound {
						<-time.After(time.Second) // the token's own limit
					}
				}
				<-time.After(2 * time.Second)
				if w := store.ask(api, "GET", "/metrics", "", header...); w.Code != http.StatusNotFound {
					t.Errorf("valid again, it is answered %d", w.Code)
				}
			})
		})
	}
}

func TestSessionsOfBrowsers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, session string
		needToken       bool
		status          int
		text            string
	}{
		"GET":                      {"GET", "known", true, 404, ""},
		"HEAD":                     {"HEAD", "known", true, 404, ""},
		"ended":                    {"GET", "ended", true, 401, "the session has ended: sign in again"},
		"ended, no token needed":   {"GET", "ended", false, 404, ""},
		"a token as a session":     {"GET", "tk_known", true, 401, "the session has ended"},
		"no session":               {"GET", "", true, 401, "a token is required"},
		"known, no token required": {"GET", "known", false, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &knownSecrets{token: operate.Token{ID: 1, Scopes: Scopes()}}
			api := New(Config{Store: store, NeedToken: c.needToken}).Handler()
			w := store.ask(api, c.method, "/metrics", "", "Cookie", "turnkeeper_session="+c.session)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) {
				t.Errorf("%d %s, want %d %q", w.Code, w.Body, c.status, c.text)
			}
		})
	}
}

// TestReadingNeedsTheScopeOfTheRoute checks that of the routes that need the scope send, the scope read opens only the
// reads.
func TestReadingNeedsTheScopeOfTheRoute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, scope string
		admitted      bool
	}{
		{"GET", request.ScopeSend, true},
		{"POST", request.ScopeSend, false},
		{"GET", request.ScopeRead, true},
		{"GET", request.ScopeOperate, false},
		{"POST", request.ScopeOperate, false},
	} {
		route := request.Route{Method: c.method, Scope: c.scope}
		if admitted := slices.Contains(route.Scopes(), request.ScopeRead); admitted != c.admitted {
			t.Errorf("%s of a route with the scope %s: %v", c.method, c.scope, admitted)
		}
	}
}

func TestWhyATokenIsNeededIsLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.WarnLevel)
	store := &knownSecrets{}
	api := New(Config{Store: store, Log: zap.New(core), Hosts: []string{"other.example"}}).Handler()
	store.ask(api, "GET", "/metrics", "")
	if n := logs.Len(); n != 0 {
		t.Errorf("a local request logs %v", logs.All())
	}
	store.ask(api, "GET", "/metrics", "", "Via", "proxy")
	if all := logs.All(); len(all) != 1 || all[0].ContextMap()["because"] != "it has the header Via" {
		t.Errorf("a request of a proxy logs %v", all)
	}
	core, logs = observer.New(zapcore.WarnLevel)
	api = New(Config{Log: zap.New(core)}).Handler()
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Host = "192.0.2.7"
	request.Header.Set("Via", "proxy")
	api.ServeHTTP(httptest.NewRecorder(), request)
	if all := logs.All(); len(all) != 1 || all[0].ContextMap()["because"] != "it has the header Via" {
		t.Errorf("a request of a proxy to an address logs %v", all)
	}
}
