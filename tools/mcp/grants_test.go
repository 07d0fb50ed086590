package mcp

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"

	"turnkeeper/internal/golden"
	"turnkeeper/tools/mcp/mcpdef"
)

// An issuer answers token requests without a network.
type issuer struct {
	mu      sync.Mutex
	asked   []string // the requests, as text
	answer  string   // %d is the number of the request; empty: it never answers
	status  int
	keys    map[string]crypto.PublicKey // of client assertions
	hanging chan struct{}               // answers are held back until it is closed; nil: they are not
}

func (i *issuer) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	n := len(i.asked) + 1
	i.asked = append(i.asked, fmt.Sprintf("%s %s %s", req.URL, req.Header.Get("Authorization"), i.told(form)))
	answer, status, hanging := i.answer, i.status, i.hanging
	i.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	answer = strings.ReplaceAll(answer, "%d", fmt.Sprint(n))
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(answer)), Request: req}, nil
}

// told returns a form as text, with what an assertion says in its place.
func (i *issuer) told(form url.Values) string {
	var words []string
	for name, values := range form {
		value := strings.Join(values, "|")
		if key := i.keys[form.Get("client_id")]; name == "client_assertion" {
			token, err := jwt.Parse(value, func(*jwt.Token) (any, error) {
				return key, nil
			}, jwt.WithTimeFunc(time.Now))
			if err != nil {
				value = err.Error()
			} else if claims, ok := token.Claims.(jwt.MapClaims); ok {
				if id, _ := claims["jti"].(string); len(id) > 20 {
					claims["jti"] = "random"
				}
				value = encoded(token.Header) + encoded(claims)
			}
		}
		words = append(words, name+"="+value)
	}
	return strings.Join(sortedStrings(words), " ")
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.asked)
}

func newIssuer() *issuer {
	return &issuer{answer: `{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, status: http.StatusOK,
		keys: map[string]crypto.PublicKey{}}
}

func (i *issuer) machine(o *OAuth) *machine {
	m := newMachine(Server{Name: "h", URL: "https://h/mcp", OAuth: o}, Access{})
	m.client = &http.Client{Transport: i}
	return m
}

// TestTokenRequests records the request of each grant: what identifies the worker, for whom the token is, and which
// scopes it has.
func TestTokenRequests(t *testing.T) {
	ec := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	public, private, failed := ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer()
		i.keys["rsa"], i.keys["ed"] = &rsaKey.PublicKey, public
		to := authority{resource: "https://h/mcp", issuer: "https://login", token: "https://login/token",
			methods: []string{"client_secret_post"}}
		header, nameless := to, to
		header.methods, nameless.issuer = nil, ""
		identity := Identity{TokenEndpoint: "https://idp/token", ClientID: "desk", Token: func() (string, error) {
			return "id-token", nil
		}}
		secret := identity
		secret.ClientSecret = "desk-secret"
		type request struct {
			name string
			o    OAuth
			from authority
		}
		requests := []request{
			{"a secret in the form", OAuth{Grant: GrantClientCredentials, ClientID: "robot", ClientSecret: "s"}, to},
			{"a secret in the header", OAuth{Grant: GrantClientCredentials, ClientID: "robot",
				ClientSecret: "s"}, header},
			{"no secret", OAuth{Grant: GrantClientCredentials, ClientID: "robot"}, header},
			{"RSA", OAuth{Grant: GrantClientCredentials, ClientID: "rsa", PrivateKey: rsaKey, KeyID: "k1"}, to},
			{"Ed25519, without an issuer", OAuth{Grant: GrantClientCredentials, ClientID: "ed",
				PrivateKey: private}, nameless},
			{"an identity", OAuth{Grant: GrantEnterprise, ClientID: "robot", ClientSecret: "s",
				Identity: identity}, to},
			{"an identity with a secret", OAuth{Grant: GrantEnterprise, ClientID: "robot", ClientSecret: "s",
				Identity: secret}, to},
		}
		for _, name := range sortedKeys(ec) {
			key, err := ecdsa.GenerateKey(ec[name], rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			i.keys[name] = &key.PublicKey
			requests = append(requests, request{name, OAuth{Grant: GrantClientCredentials, ClientID: name,
				PrivateKey: key}, to})
		}
		i.answer =
			`{"access_token":"token-%d","token_type":"bearer","issued_token_type":"urn:ietf:params:oauth:token-type:id-jag"}`
		var said strings.Builder
		for _, r := range requests {
			i.asked = nil
			var learnt []string
			token, err := askAsMachine(withClient(t.Context(), &http.Client{Transport: i}),
				Server{Name: "h", OAuth: &r.o}, r.from, []string{"a", "b"},
				func(s string) { learnt = append(learnt, s) })
			if err != nil || !token.Expiry.IsZero() {
				t.Errorf("%s: %+v, %v", r.name, token, err)
				continue
			}
			fmt.Fprintf(&said, "%s: %s, learnt %q\n  %s\n", r.name, token.AccessToken, learnt,
				strings.Join(i.asked, "\n  "))
		}
		golden.File(t, "testdata/token_requests.txt", said.String())
	})
}

// TestTokensThatAreNotGiven checks what operators read if there is no token, for each answer of a token endpoint.
func TestTokensThatAreNotGiven(t *testing.T) {
	t.Parallel()
	vouched := Identity{TokenEndpoint: "https://idp/token", ClientID: "desk", Token: func() (string, error) {
		return "id-token", nil
	}}
	noFile := Identity{Token: func() (string, error) { return "", errors.New("no such file") }}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status int
		answer string
		o      OAuth
		want   string
	}{
		{400, `{"error":"invalid_client","error_description":"who?"}`, OAuth{},
			"the authorization server refuses a token (HTTP status 400, invalid_client): who?"},
		{401, `{"error":"invalid_client"}`, OAuth{},
			"the authorization server refuses a token (HTTP status 401, invalid_client)"},
		{503, `secret page`, OAuth{}, "the authorization server refuses a token (HTTP status 503)"},
		{200, `{"access_token":"x","token_type":"mac"}`, OAuth{},
			`the authorization server has given a token of the kind "mac", which cannot be used`},
		{200, `secret page`, OAuth{}, "what the authorization server answered is no token"},
		{200, `{}`, OAuth{}, "oauth2: server response missing access_token"},
		{400, `{"error":"invalid_grant"}`, OAuth{Grant: GrantEnterprise, Identity: vouched},
			"the identity provider does not vouch for this worker: the authorization server refuses a token (HTTP status 400, invalid_grant)"},
		{200, ``, OAuth{Grant: GrantEnterprise, Identity: noFile}, "the ID token cannot be read: no such file"},
		{200, ``, OAuth{PrivateKey: p224},
			"the private key is of a kind that cannot sign here: use RSA, Ed25519, or EC on P-256, P-384 or P-521"},
	} {
		i := newIssuer()
		i.status, i.answer = c.status, c.answer
		token, err := askAsMachine(withClient(t.Context(), &http.Client{Transport: i}), Server{Name: "h", OAuth: &c.o},
			authority{resource: "https://h/mcp", issuer: "https://login", token: "https://login/token"}, nil,
			func(string) {})
		if token != nil || err == nil || err.Error() != c.want {
			t.Errorf("%d %s: %v, %v\nwant %s", c.status, c.answer, token, err, c.want)
		}
	}
}

var unauthorized = refusal{status: http.StatusUnauthorized}

// TestWhenAMachineAsksForAToken checks over time how often a worker asks for a token, and that calls which wait
// together share one answer, but not the end of one of them.
func TestWhenAMachineAsksForAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer()
		m := i.machine(&OAuth{Grant: GrantClientCredentials, ClientID: "robot", TokenEndpoint: "https://login/token",
			Scopes: []string{"a"}})
		var learnt []string
		m.access.Learn = func(secret string) { learnt = append(learnt, secret) }
		holds := func(when, want string) {
			t.Helper()
			if got, err := m.token(t.Context()); got != want || err != nil {
				t.Errorf("%s: %q, %v, want %q", when, got, err, want)
			}
		}
		holds("before a refusal", "")
		if again, err := m.renew(t.Context(), "", unauthorized); !again || err != nil {
			t.Fatal(again, err)
		}
		holds("given", "token-1")
		time.Sleep(time.Hour - 30*time.Second)
		holds("half a minute before its end", "token-1")
		time.Sleep(time.Nanosecond)
		holds("in its last half minute", "token-2")
		if again, err := m.renew(t.Context(), "token-1", unauthorized); !again || err != nil || i.count() != 2 {
			t.Errorf("a token that is replaced already: %t, %v, %d requests", again, err, i.count())
		}
		if again, err := m.renew(t.Context(), "token-2", refusal{status: http.StatusForbidden}); again || err != nil ||
			i.count() != 2 {
			t.Errorf("refused for another reason: %t, %v, %d requests", again, err, i.count())
		}
		more := refusal{status: http.StatusForbidden, code: "insufficient_scope", scopes: []string{"b"}}
		if again, err := m.renew(t.Context(), "token-2", more); !again || err != nil || !strings.Contains(i.asked[2],
			"scope=a b") {
			t.Errorf("more scopes: %t, %v, %v", again, err, i.asked)
		}
		if again, err := m.renew(t.Context(), "token-3", more); again || err == nil || i.count() != 3 {
			t.Errorf("scopes that were not granted: %t, %v, %d requests", again, err, i.count())
		}
		if fmt.Sprint(learnt) != "[token-1 token-2 token-3]" {
			t.Errorf("learnt: %v", learnt)
		}
	})
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			i := newIssuer()
			i.status, i.answer, i.hanging = 503, "", make(chan struct{})
			m := i.machine(&OAuth{Grant: GrantClientCredentials, TokenEndpoint: "https://login/token"})
			first, end := context.WithCancel(t.Context())
			defer end()
			failures := make(chan error, 2)
			try := func(ctx context.Context) {
				_, err := m.renew(ctx, "", unauthorized)
				failures <- err
			}
			go try(first)
			synctest.Wait()
			go try(t.Context())
			synctest.Wait()
			time.Sleep(time.Second)
			if ends {
				end()
				synctest.Wait()
			}
			close(i.hanging)
			synctest.Wait()
			one, two := <-failures, <-failures
			if want := map[bool]int{false: 1, true: 2}[ends]; i.count() != want || one == nil || two == nil || !ends &&
				one.Error() != two.Error() {
				t.Errorf("the first call ends: %t: %d requests, %v, %v", ends, i.count(), one, two)
			}
			go try(t.Context())
			synctest.Wait()
			if err := <-failures; err == nil || !strings.Contains(err.Error(), "HTTP status 503") || i.count() < 2 {
				t.Errorf("the next call: %v, %d requests", err, i.count())
			}
		})
	}
}

// TestATokenIsUsedWhileItIsReplaced lets calls of many sessions use a machine's token while its server refuses one
// after the other. With the race detector it also shows that they do not share it without a lock.
func TestATokenIsUsedWhileItIsReplaced(t *testing.T) {
	const sessions, refusals = 8, 25
	i := newIssuer()
	m := i.machine(&OAuth{Grant: GrantClientCredentials, TokenEndpoint: "https://login/token"})
	if again, err := m.renew(t.Context(), "", unauthorized); !again || err != nil {
		t.Fatal(again, err)
	}
	var all sync.WaitGroup
	for session := range sessions {
		all.Go(func() {
			for n := range refusals {
				used, err := m.token(t.Context())
				if err != nil || used == "" {
					t.Errorf("it has the token %q, %v", used, err)
					return
				}
				if session%2 == 0 || n == refusals-1 { // it is accepted
					if m.now() == "" {
						t.Error("it has no token")
					}
					continue
				}
				if again, err := m.renew(t.Context(), used, unauthorized); !again || err != nil || m.now() == used {
					t.Errorf("%s was refused: %t, %v, and it has the token %s", used, again, err, m.now())
				}
			}
		})
	}
	all.Wait()
	if n := i.count(); n < refusals || n > 1+sessions/2*(refusals-1) {
		t.Errorf("%d requests for %d refusals", n, sessions/2*(refusals-1))
	}
}

// A vault is a LoginStore of one login that fails in one of its ways.
type vault struct {
	LoginStore
	row    mcpdef.Login
	fails  string // the method that fails
	steps  []string
	lapsed string
	saved  mcpdef.Login
}

func (v *vault) step(name string) error {
	if n := len(v.steps); n == 0 || v.steps[n-1] != name { // what is tried again counts once
		v.steps = append(v.steps, name)
	}
	if v.fails == name {
		return errors.New("no database")
	}
	return nil
}

func (v *vault) MCPLogin(context.Context, string) (mcpdef.Login, error) { return v.row, v.step("read") }

func (v *vault) ClaimMCPLogin(_ context.Context, server string, revision int64, claim string,
	hold time.Duration) (bool, error) {
	return true, v.step(fmt.Sprintf("claim %s %d %t %s", server, revision, len(claim) > 20, hold))
}

func (v *vault) RenewMCPLogin(_ context.Context, l mcpdef.Login, claim string) (bool, error) {
	v.saved = l
	err := v.step(fmt.Sprintf("renew %t", len(claim) > 20))
	if err == nil {
		l.Revision++
		v.row = l
	}
	return true, err
}

func (v *vault) ReleaseMCPLogin(_ context.Context, server, claim, lapsed string) error {
	v.lapsed = lapsed
	return v.step(fmt.Sprintf("release %s %t", server, len(claim) > 20))
}

func (v *vault) WantMCPScopes(_ context.Context, server string, scopes []string) error {
	return v.step(fmt.Sprintf("want %s %v", server, scopes))
}

// TestARenewalStepByStep checks what is asked of the store and of the authorization server when a token is refused,
// what is stored then, and what the call is told if one of these steps fails.
func TestARenewalStepByStep(t *testing.T) {
	const claim, renewed, released = "claim h 7 true 30s", "renew true", "release h true"
	for name, c := range map[string]struct {
		fails, answer string
		status        int
		steps         string
		lapsed, err   string
		took          time.Duration
	}{
		"it works": {steps: "read " + claim + " " + renewed + " read"},
		"it cannot be read": {fails: "read", steps: "read",
			err: "no token was had for it: the login cannot be read: no database"},
		"it cannot be claimed": {fails: claim, steps: "read " + claim, err: "no token was had for it: no database"},
		"it cannot be kept": {fails: renewed, steps: "read " + claim + " " + renewed,
			err: "no token was had for it: the renewed login could not be kept: no database", took: 10 * time.Second},
		"it is over": {status: 400, answer: `{"error":"invalid_grant"}`, steps: "read " + claim + " " +
			released, lapsed: "the authorization server refuses a token (HTTP status 400, invalid_grant)",
			err: `the login has ended (the authorization server refuses a token (HTTP status 400, invalid_grant)): run "turnctl mcp login h"`},
		"the client is not one": {status: 401, answer: `{"error":"invalid_client"}`, steps: "read " + claim + " " +
			released, lapsed: "the authorization server refuses a token (HTTP status 401, invalid_client)",
			err: `the login has ended (the authorization server refuses a token (HTTP status 401, invalid_client)): run "turnctl mcp login h"`},
		"not now": {status: 503, answer: `{}`, steps: "read " + claim + " " + released,
			err: "no token was had for it: the authorization server refuses a token (HTTP status 503)"},
		"not now, nor the store": {status: 503, answer: `{}`, fails: released, steps: "read " + claim + " " + released,
			err: "no token was had for it: the authorization server refuses a token (HTTP status 503); and this could not be noted: no database"},
		"never": {status: 200, answer: "hangs", steps: "read " + claim + " " + released,
			err: "no token was had for it: the authorization server did not answer within 15s", took: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newIssuer()
				i.answer =
					`{"access_token":"token-%d","refresh_token":"next","token_type":"Bearer","expires_in":60,"scope":"x y"}`
				if c.status != 0 {
					i.answer, i.status = c.answer, c.status
				}
				if c.answer == "hangs" {
					i.hanging = make(chan struct{})
				}
				key := make([]byte, KeyBytes)
				l := login{URL: "https://h/mcp", Resource: "https://r", Endpoint: "https://login/token", ClientID: "id",
					Secret: "s", Style: int(oauth2.AuthStyleInParams), Access: "old", Refresh: "refresh"}
				sealed, err := l.seal(key, "h")
				if err != nil {
					t.Fatal(err)
				}
				row := mcpdef.Login{Server: "h", Revision: 7, Sealed: sealed, Scopes: []string{"before"},
					Wanted: []string{"w"}, LoggedInAt: time.Unix(5, 0)}
				v := &vault{row: row, fails: c.fails}
				var learnt []string
				k := newTokenCache(Server{Name: "h", URL: "https://h/mcp", OAuth: &OAuth{}}, Access{Key: key, Logins: v,
					Learn: func(s string) { learnt = append(learnt, s) }})
				k.client = &http.Client{Transport: i}
				began := time.Now()
				again, err := k.renew(t.Context(), "old", unauthorized)
				if again != (c.err == "") || c.err != "" && (err == nil || err.Error() != c.err) {
					t.Errorf("again %t, %v\nwant %s", again, err, c.err)
				}
				if took := time.Since(began).Round(time.Second); took != c.took || strings.Join(v.steps,
					" ") != c.steps || v.lapsed != c.lapsed {
					t.Errorf("after %s, lapsed %q: %s\nwant %s", took, v.lapsed, strings.Join(v.steps, " "), c.steps)
				}
				if c.err != "" {
					return
				}
				if want :=
					"https://login/token  client_id=id client_secret=s grant_type=refresh_token refresh_token=refresh resource=https://r"; i.asked[0] != want {
					t.Errorf("asked %s\nwant  %s", i.asked[0], want)
				}
				after, err := unseal(key, "h", v.saved.Sealed)
				l.Access, l.Refresh, l.Given, l.Expiry = "token-1", "next", began, began.Add(time.Minute)
				if encoded(after) != encoded(l) || err != nil {
					t.Errorf("kept %s, %v\nwant %s", encoded(after), err, encoded(l))
				}
				row.Sealed, row.Scopes, row.Expires, row.Renewable = v.saved.Sealed, []string{"x", "y"}, l.Expiry, true
				if encoded(v.saved) != encoded(row) {
					t.Errorf("stored %s\nwant   %s", encoded(v.saved), encoded(row))
				}
				if got := fmt.Sprint(learnt); got != "[old refresh s token-1 next token-1 next s]" {
					t.Errorf("learnt %s", got)
				}
			})
		})
	}
}

// TestTokensThatAreOverAtOnce checks that a worker does not renew a login again and again, if each new token is over
// when it is given.
func TestTokensThatAreOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer()
		i.answer = `{"access_token":"token-%d","refresh_token":"next","token_type":"Bearer","expires_in":-1}`
		key := make([]byte, KeyBytes)
		sealed, err := login{URL: "https://h/mcp", Endpoint: "https://login/token", Access: "old", Refresh: "refresh",
			Given: time.Now(), Expiry: time.Now()}.seal(key, "h")
		if err != nil {
			t.Fatal(err)
		}
		v := &vault{row: mcpdef.Login{Server: "h", Revision: 1, Sealed: sealed}}
		k := newTokenCache(Server{Name: "h", URL: "https://h/mcp", OAuth: &OAuth{}}, Access{Key: key, Logins: v})
		k.client = &http.Client{Transport: i}
		time.Sleep(time.Second)
		const want = `its authorization server gives tokens that are refused, or are over at once: run "turnctl mcp login h"`
		if _, err := k.token(t.Context()); err == nil || err.Error() != want || i.count() != 2 {
			t.Errorf("%v after %d renewals, want two and %s", err, i.count(), want)
		}
		if !strings.Contains(i.asked[1], "refresh_token=next") {
			t.Errorf("the second renewal: %v", i.asked)
		}
	})
}

// TestScopesThatALoginLacks checks what is noted for the next login, and what a call is told.
func TestScopesThatALoginLacks(t *testing.T) {
	t.Parallel()
	key := make([]byte, KeyBytes)
	sealed, err := login{URL: "https://h/mcp", Access: "old"}.seal(key, "h")
	if err != nil {
		t.Fatal(err)
	}
	const lacks = `the login does not cover what it wants (scopes "b c"): run "turnctl mcp login h"`
	for _, c := range []struct {
		wanted      []string
		used, fails string
		steps, err  string
	}{
		{nil, "old", "", "[read want h [b c]]", lacks}, {[]string{"a", "b"}, "old", "", "[read want h [a b c]]", lacks},
		{[]string{"c", "b"}, "old", "", "[read]", lacks}, {nil, "other", "", "[read]", "<nil>"},
		{nil, "old", "want h [b c]", "[read want h [b c]]",
			"no token was had for it: it wants more scopes, and that could not be noted: no database"},
		{nil, "old", "read", "[read]", "no token was had for it: the login cannot be read: no database"},
	} {
		v := &vault{row: mcpdef.Login{Server: "h", Revision: 1, Sealed: sealed, Wanted: c.wanted}, fails: c.fails}
		k := newTokenCache(Server{Name: "h", URL: "https://h/mcp", OAuth: &OAuth{}}, Access{Key: key, Logins: v})
		again, err := k.renew(t.Context(), c.used, refusal{status: http.StatusForbidden, code: "insufficient_scope",
			scopes: []string{"b", "c"}})
		if again != (err == nil) || fmt.Sprint(err) != c.err || fmt.Sprint(v.steps) != c.steps {
			t.Errorf("%v, used %s: %t, %v after %v\nwant %s after %s", c.wanted, c.used, again, err, v.steps,
				c.err, c.steps)
		}
		if again, err := k.renew(t.Context(), c.used, refusal{status: http.StatusForbidden}); again || err != nil ||
			fmt.Sprint(v.steps) != c.steps {
			t.Errorf("refused for another reason: %t, %v after %v", again, err, v.steps)
		}
	}
}

// TestALoginIsSealed checks that every field of a login comes back, and that neither another key, nor another server,
// nor a changed text opens it.
func TestALoginIsSealed(t *testing.T) {
	t.Parallel()
	l := login{
		URL: "u", Resource: "r", Endpoint: "e", Metadata: "m", ClientID: "c", Secret: "s", Style: 2,
		Access: "a", Refresh: "f",
		Given: time.Unix(1, 0).UTC(), Expiry: time.Unix(2, 0).UTC(),
	}
	text, _ := json.Marshal(l)
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil || len(fields) != 11 {
		t.Fatalf("a field is not set: %s", text)
	}
	key, other := make([]byte, KeyBytes), append(make([]byte, KeyBytes-1), 1)
	one, err := l.seal(key, "h")
	two, again := l.seal(key, "h")
	if err := errors.Join(err, again); err != nil || string(one) == string(two) {
		t.Fatalf("the same text twice, or %v", err)
	}
	if got, err := unseal(key, "h", one); err != nil || got != l {
		t.Errorf("opened: %+v, %v", got, err)
	}
	for name, open := range map[string]func() (login, error){
		"another key":    func() (login, error) { return unseal(other, "h", one) },
		"another server": func() (login, error) { return unseal(key, "i", one) },
		"a changed text": func() (login, error) { return unseal(key, "h", append([]byte{one[0] ^ 1}, one[1:]...)) },
	} {
		if got, err := open(); !errors.Is(err, errSealed) || got != (login{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, n := range []int{0, KeyBytes - 1, KeyBytes + 1} {
		if _, err := l.seal(make([]byte, n), "h"); err == nil ||
			err.Error() != "there is no key for logins: set mcp_login_key" {
			t.Errorf("a key of %d bytes seals: %v", n, err)
		}
		if _, err := unseal(make([]byte, n), "h", one); err == nil {
			t.Errorf("a key of %d bytes opens", n)
		}
	}
}
