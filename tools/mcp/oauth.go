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

// A Grant is a way to get tokens for a server.
type Grant string

// The grants. Only GrantAuthorizationCode needs a person to log in.
const (
	GrantClientCredentials Grant = "client_credentials" // the worker itself is the client, with a secret or a key
	GrantAuthorizationCode Grant = "authorization_code" // a person logs in once: see Login
	GrantEnterprise        Grant = "enterprise"         // an identity provider vouches for the worker
)

// OAuth configures how to get tokens for a server over HTTP.
type OAuth struct {
	Grant Grant

	// ClientID is the worker's client id at the authorization server. With
	// GrantAuthorizationCode it may be empty: then ClientMetadataURL is the id if
	// the authorization server supports that, and else the worker registers itself.
	ClientID          string
	ClientMetadataURL string
	ClientSecret      string        // empty: PrivateKey, or a public client
	PrivateKey        crypto.Signer // signs client assertions, used instead of a secret; nil: ClientSecret
	KeyID             string        // of PrivateKey, sent as kid; empty: not sent

	// Issuer is the only authorization server to use. Empty: the one that the
	// server names, whichever that is.
	Issuer string
	// TokenEndpoint is where to request tokens, without discovery. Empty: it is
	// discovered. Only for GrantClientCredentials.
	TokenEndpoint string
	Scopes        []string // to request; nil: those that the server asks for

	RedirectPort int // port on this machine for the redirect of a login; 0: any

	Identity Identity // for GrantEnterprise
}

// An Identity is a worker's identity at an identity provider.
type Identity struct {
	TokenEndpoint string                 // of the identity provider
	ClientID      string                 // at the identity provider
	ClientSecret  string                 // of ClientID; empty: a public client
	Token         func() (string, error) // returns the current ID token
}

// An AuthError says that there is no token that a server accepts. Nothing was
// run. Its text holds no secret.
type AuthError struct {
	Why string
	// Login is the server that a person must log in to. Empty: a login would not
	// help.
	Login string
}

func (e *AuthError) Error() string {
	if e.Login == "" {
		return e.Why
	}
	return fmt.Sprintf("%s: run \"turnctl mcp login %s\"", e.Why, e.Login)
}

// An authorizer provides the tokens for one server, to all sessions with it.
type authorizer interface {
	// token returns the token to send. Empty: send none until the server asks for
	// one.
	token(ctx context.Context) (string, error)
	// renew gets another token after the server refused used. again reports whether
	// to retry the request.
	renew(ctx context.Context, used string, why refusal) (again bool, err error)
	// close returns after running renewals.
	close()
}

// A refusal is the response of a server that requires a token, or one with more
// scopes.
type refusal struct {
	status   int
	metadata string   // URL of the resource metadata; empty: the well-known places
	scopes   []string // required; nil: not stated
	code     string   // such as insufficient_scope

	challenges []string // WWW-Authenticate headers as received
}

// refusalOf reads a response. ok is false if it is no refusal.
func refusalOf(res *http.Response) (r refusal, ok bool) {
	if res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
		return r, false
	}
	r.status, r.challenges = res.StatusCode, res.Header.Values("WWW-Authenticate")
	challenges, err := oauthex.ParseWWWAuthenticate(r.challenges)
	if err != nil {
		return r, true // as if there were no header
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

// Limits of the scopes that a server names.
const (
	maxScopes = 64
	maxScope  = 256 // bytes
)

// cleanScopes returns the valid scopes without duplicates, at most maxScopes.
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

// contains reports whether a has all of b.
func contains(a, b []string) bool {
	return !slices.ContainsFunc(b, func(s string) bool { return !slices.Contains(a, s) })
}

// bearer sends requests with tokens, and renews a refused token within the
// context of the request.
type bearer struct {
	next http.RoundTripper
	auth authorizer
}

// maxRenewals is the maximum number of renewals for one request: one for a
// first token, and one for more scopes.
const maxRenewals = 2

// RoundTrip sends one request.
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

// withToken returns the request with the token. The first attempt uses the
// request's own body, later ones a copy.
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

// maxDrained is the maximum number of bytes to read of an unused response,
// which allows its connection to be reused.
const maxDrained = 64 << 10

func drain(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxDrained)
	_ = res.Body.Close()
}

// authTime is the timeout of all work for one token, and tokenTime that of one
// request for it.
const (
	authTime  = 30 * time.Second
	tokenTime = 15 * time.Second
)

// A gate is a mutex whose lock can be cancelled by a context.
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

// newAuthorizer returns the authorizer of a server, or nil if it needs no
// tokens.
func newAuthorizer(s Server, access Access) authorizer {
	if s.OAuth == nil || s.URL == "" {
		return nil
	}
	if s.OAuth.Grant == GrantAuthorizationCode {
		return newTokenCache(s, access)
	}
	return newMachine(s, access)
}

// Access is what it takes to get tokens, in addition to the settings of a
// server. The zero value is for a process that stores no logins.
type Access struct {
	Logins LoginStore // nil: there are no logins
	Key    []byte     // of KeyBytes bytes; encrypts logins
	// Learn is called with each secret, which it can then mask. nil: nothing is
	// masked.
	Learn func(secret string)
}

func (a Access) learn(secret string) {
	if a.Learn != nil && secret != "" {
		a.Learn(secret)
	}
}

var errNoLogins = errors.New("its login is in the database, which cannot be read here")
