package mcp

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// A Grant is how tokens for a server are had.
type Grant string

// The grants. With the first and the last nobody logs in.
const (
	GrantClientCredentials Grant = "client_credentials" // the worker is known itself, by a secret or a key
	GrantAuthorizationCode Grant = "authorization_code" // a person has logged in once: see Login
	GrantEnterprise        Grant = "enterprise"         // an identity provider vouches for the worker
)

// OAuth says how tokens for a server over HTTP are had.
type OAuth struct {
	Grant Grant

	// ClientID is what the worker is called at the authorization server. With
	// GrantAuthorizationCode it may be empty: then ClientMetadataURL is the id where
	// the authorization server takes such, and else it registers itself.
	ClientID          string
	ClientMetadataURL string
	ClientSecret      string        // empty: PrivateKey, or a public client
	PrivateKey        crypto.Signer // signs what the worker says of itself, in place of a secret; nil: ClientSecret
	KeyID             string        // of PrivateKey, for who has several; empty: none is said

	// Issuer is the only authorization server that is talked to. Empty: the one that
	// the server names, whichever that is.
	Issuer string
	// TokenEndpoint is where tokens are asked for. Nothing is looked up then. Empty: it is
	// looked up. Only for GrantClientCredentials.
	TokenEndpoint string
	Scopes        []string // to ask for; nil: what the server asks for

	RedirectPort int // on this machine, where a login comes back to; 0: any

	Identity Identity // of GrantEnterprise
}

// An Identity is what an identity provider knows a worker by.
type Identity struct {
	TokenEndpoint string                 // of the identity provider
	ClientID      string                 // there
	ClientSecret  string                 // there; empty: a public client
	Token         func() (string, error) // the ID token, as it is now
}

// An AuthError says that there is no token that a server takes. Nothing was run. Its
// text holds no secret.
type AuthError struct {
	Why string
	// Login is the server that somebody must log in to; empty: that would not help.
	Login string
}

func (e *AuthError) Error() string {
	if e.Login == "" {
		return e.Why
	}
	return fmt.Sprintf("%s: run \"turnctl mcp login %s\"", e.Why, e.Login)
}

// An authorizer has the tokens for one server, for all sessions with it.
type authorizer interface {
	// token is what a request carries; empty: nothing, until the server asks for it.
	token(ctx context.Context) (string, error)
	// renew gets another token after the server has refused the one that a request
	// carried. again is false where another would not change that.
	renew(ctx context.Context, used string, why refusal) (again bool, err error)
	// close returns when nothing is under way any more.
	close()
}

// A refusal is what a server says that wants a token, or a better one.
type refusal struct {
	status   int
	metadata string   // where it says more; empty: at the usual places
	scopes   []string // that it wants; nil: it does not say
	code     string   // such as insufficient_scope

	challenges []string // as they came
}

// refusalOf reads a response; ok is false where that is none.
func refusalOf(res *http.Response) (r refusal, ok bool) {
	if res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
		return r, false
	}
	r.status, r.challenges = res.StatusCode, res.Header.Values("WWW-Authenticate")
	challenges, err := oauthex.ParseWWWAuthenticate(r.challenges)
	if err != nil {
		return r, true // as if it had said nothing
	}
	for _, c := range challenges {
		if url := c.Params["resource_metadata"]; url != "" && r.metadata == "" {
			r.metadata = url
		}
		if c.Scheme != "bearer" {
			continue
		}
		if r.scopes == nil {
			r.scopes = cleanScopes(strings.Fields(c.Params["scope"]))
		}
		if r.code == "" {
			r.code = c.Params["error"]
		}
	}
	return r, true
}

func (r refusal) insufficientScope() bool {
	return r.status == http.StatusForbidden && r.code == "insufficient_scope"
}

// Bounds of what a server says of scopes.
const (
	maxScopes = 64
	maxScope  = 256 // bytes
)

// cleanScopes are those that can be scopes, each once.
func cleanScopes(all []string) []string {
	var scopes []string
	for _, s := range all {
		odd := strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
		if s != "" && !odd && len(s) <= maxScope && len(scopes) < maxScopes && !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes
}

func union(a, b []string) []string { return cleanScopes(slices.Concat(a, b)) }

// contains says that all of b are in a.
func contains(a, b []string) bool {
	return !slices.ContainsFunc(b, func(s string) bool { return !slices.Contains(a, s) })
}

// bearer carries requests with tokens, and gets another when one is refused. It has
// the time of the request.
type bearer struct {
	next http.RoundTripper
	auth authorizer
}

// maxRenewals bounds the tokens that one request is worth: a first one, and one with
// more scopes.
const maxRenewals = 2

// RoundTrip carries one request.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	refused := 0 // with 401
	for attempt := 0; ; attempt++ {
		token, err := b.auth.token(req.Context())
		if err != nil {
			closeBody(req)
			return nil, err
		}
		one, err := withToken(req, token, attempt)
		if err != nil {
			return nil, err
		}
		res, err := b.next.RoundTrip(one)
		if err != nil {
			return nil, err
		}
		why, ok := refusalOf(res)
		if !ok || attempt == maxRenewals || (req.GetBody == nil && req.Body != nil && req.Body != http.NoBody) {
			return res, nil
		}
		if why.status == http.StatusUnauthorized {
			if refused++; refused > 1 {
				drain(res)
				return nil, &AuthError{Why: "it does not take the token that its authorization server has just given"}
			}
		}
		again, err := b.auth.renew(req.Context(), token, why)
		if err != nil {
			drain(res)
			return nil, err
		}
		if !again {
			return res, nil
		}
		drain(res)
	}
}

// withToken is the request as it is sent. Its body is that of the request for the
// first attempt, and a copy after that.
func withToken(req *http.Request, token string, attempt int) (*http.Request, error) {
	one := req.Clone(req.Context())
	if attempt > 0 && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		one.Body = body
	}
	if token != "" {
		one.Header.Set("Authorization", "Bearer "+token)
	}
	return one, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// maxDrained bounds what is read of a response that nobody wants, so that its
// connection can be used again.
const maxDrained = 64 << 10

func drain(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxDrained)
	_ = res.Body.Close()
}

// authTime bounds what is done for one token, and tokenTime one request for it.
const (
	authTime  = 30 * time.Second
	tokenTime = 15 * time.Second
)

// A gate lets one at a time in, as long as their contexts last.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g gate) leave() { <-g }

// newAuthorizer is that of a server; nil: it wants no tokens.
func newAuthorizer(s Server, access Access) authorizer {
	if s.OAuth == nil || s.URL == "" {
		return nil
	}
	if s.OAuth.Grant == GrantAuthorizationCode {
		return newTokenCache(s, access)
	}
	return newMachine(s, access)
}

// Access is what tokens take beside the settings of a server. The zero value is that
// of a process that keeps no logins.
type Access struct {
	Logins LoginStore // nil: there are none
	Key    []byte     // KeyBytes of it: what logins are sealed with
	// Learn is told of each secret that is had, so that it can be masked. nil: nobody
	// masks.
	Learn func(secret string)
}

func (a Access) learn(secret string) {
	if a.Learn != nil && secret != "" {
		a.Learn(secret)
	}
}

var errNoLogins = errors.New("its login is in the database, which cannot be read here")
