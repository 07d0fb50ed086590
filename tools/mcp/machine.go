package mcp

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"
)

func newID() string { return rand.Text() }

// signingMethod returns the signing method for a key.
func signingMethod(key crypto.Signer) (jwt.SigningMethod, error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return jwt.SigningMethodRS256, nil
	case ed25519.PrivateKey:
		return jwt.SigningMethodEdDSA, nil
	case *ecdsa.PrivateKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return jwt.SigningMethodES256, nil
		case 384:
			return jwt.SigningMethodES384, nil
		case 521:
			return jwt.SigningMethodES512, nil
		}
	}
	return nil,
		errors.New(
			"the private key is of a kind that cannot sign here: use RSA, Ed25519, or EC on P-256, P-384 or P-521")
}

// withClient returns a context that makes the oauth2 packages send token
// requests by client.
func withClient(ctx context.Context, client *http.Client) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, client)
}

func clientOf(ctx context.Context) *http.Client {
	client, _ := ctx.Value(oauth2.HTTPClient).(*http.Client)
	return client
}

// A machine gets tokens that need no login. It keeps them only in memory: each
// worker requests its own.
//
// The SDK's extauth.ClientCredentialsHandler (v1.8.0) is not used. It has no
// private_key_jwt and sends no resource. It takes neither scopes, nor a token
// endpoint, nor one of several issuers from settings. It skips metadata that it
// cannot use, requests the same scopes again, renews under the context of the
// first request, has no lock for several sessions, and does not report new
// tokens for masking.
type machine struct {
	server    Server
	client    *http.Client
	closeIdle func()
	access    Access
	turn      gate // held while requesting a token

	mu     sync.Mutex
	held   *oauth2.Token // nil: none
	since  time.Time     // when held was issued
	from   *authority    // nil: not discovered yet
	asked  []string      // requested scopes
	failed time.Time     // when the last request failed
	why    error
}

func newMachine(s Server, access Access) *machine {
	client, closeIdle := newAuthClient(s)
	return &machine{server: s, client: client, closeIdle: closeIdle, access: access, turn: newGate()}
}

func (m *machine) close() { m.closeIdle() }

// lapsing reports whether a token is about to expire: it could expire before
// the server checks it.
func lapsing(expiry, since time.Time) bool {
	if expiry.IsZero() {
		return false
	}
	margin := 30 * time.Second
	if life := expiry.Sub(since); life < 4*margin {
		margin = life / 4
	}
	return time.Until(expiry) < margin
}

func (m *machine) token(ctx context.Context) (string, error) {
	m.mu.Lock()
	held, since, from, asked := m.held, m.since, m.from, m.asked
	m.mu.Unlock()
	switch {
	case held == nil:
		return "", nil
	case !lapsing(held.Expiry, since):
		return held.AccessToken, nil
	}
	if err := m.replace(ctx, held.AccessToken, func(context.Context) (authority, []string, error) {
		return *from, asked, nil
	}); err != nil {
		return "", err
	}
	return m.now(), nil
}

func (m *machine) now() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		return ""
	}
	return m.held.AccessToken
}

func (m *machine) renew(ctx context.Context, used string, why refusal) (bool, error) {
	if why.status == http.StatusForbidden && !why.insufficientScope() {
		return false, nil
	}
	m.mu.Lock()
	asked, given := m.asked, used != "" && m.held != nil && m.held.AccessToken == used
	m.mu.Unlock()
	if why.insufficientScope() && given && contains(asked, why.scopes) {
		return false, notGranted(why.scopes)
	}
	err := m.replace(ctx, used, func(ctx context.Context) (authority, []string, error) {
		from, err := discover(ctx, m.client, m.server, why.metadata)
		if err != nil {
			return authority{}, nil, err
		}
		scopes := why.scopes
		switch {
		case len(m.server.OAuth.Scopes) > 0 && !why.insufficientScope():
			scopes = m.server.OAuth.Scopes
		case len(scopes) == 0:
			scopes = from.scopes
		}
		return from, union(asked, scopes), nil
	})
	return err == nil, err
}

// notGranted returns the error for scopes that the authorization server did not
// grant although they were requested.
func notGranted(scopes []string) error {
	return &AuthError{
		Why: fmt.Sprintf("it wants a token with the scopes %q, and its authorization server has given one without",
			strings.Join(scopes, " "))}
}

// replace gets a token other than used. Only one caller requests at a time; the
// others wait and share its result.
func (m *machine) replace(caller context.Context, used string,
	plan func(context.Context) (authority, []string, error)) error {
	began := time.Now()
	ctx, stop := context.WithTimeout(withClient(caller, m.client), authTime)
	defer stop()
	if err := m.turn.enter(ctx); err != nil {
		return noToken(err)
	}
	defer m.turn.leave()
	m.mu.Lock()
	other := m.held != nil && m.held.AccessToken != used
	failed, why := m.failed, m.why
	m.mu.Unlock()
	switch {
	case other:
		return nil
	case failed.After(began):
		return why
	}
	from, scopes, err := plan(ctx)
	var token *oauth2.Token
	if err == nil {
		token, err = askAsMachine(ctx, m.server, from, scopes, m.access.learn)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		err = noToken(err)
		if caller.Err() == nil { // else only this caller gave up, and those who wait try themselves
			m.failed, m.why = time.Now(), err
		}
		return err
	}
	m.access.learn(token.AccessToken)
	m.held, m.since, m.from, m.asked = token, time.Now(), &from, scopes
	return nil
}

// noToken returns an AuthError with the cause, or err if it is one already.
func noToken(err error) error {
	if _, ok := errors.AsType[*AuthError](err); ok {
		return err
	}
	return &AuthError{Why: "no token was had for it: " + err.Error()}
}
