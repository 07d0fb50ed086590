package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"turnkeeper"
	"turnkeeper/tools/mcp/mcpdef"
)

// A LoginStore stores people's logins, one per server, shared by all workers.
// Implementations are safe for concurrent use.
type LoginStore interface {
	// MCPLogin returns the login of a server, or turnkeeper.ErrNotFound.
	MCPLogin(ctx context.Context, server string) (mcpdef.Login, error)
	// SaveMCPLogin stores a new login and replaces the old one.
	SaveMCPLogin(ctx context.Context, l mcpdef.Login) error
	// ClaimMCPLogin gives the caller the exclusive right to renew a login for the
	// duration hold. It returns false if another caller has it, or if the login no
	// longer has that revision.
	ClaimMCPLogin(ctx context.Context, server string, revision int64, claim string, hold time.Duration) (bool, error)
	// RenewMCPLogin stores a renewed login and ends the claim. It returns false if
	// the claim had expired.
	RenewMCPLogin(ctx context.Context, l mcpdef.Login, claim string) (bool, error)
	// ReleaseMCPLogin ends a claim. lapsed is why the login is no longer valid;
	// empty: it may still be valid.
	ReleaseMCPLogin(ctx context.Context, server, claim, lapsed string) error
	// WantMCPScopes stores the scopes to request at the next login.
	WantMCPScopes(ctx context.Context, server string, scopes []string) error
	// ForgetMCPLogin removes a login. It returns false if there was none.
	ForgetMCPLogin(ctx context.Context, server string) (bool, error)
}

// Timeouts and intervals of a tokenCache.
const (
	// freshTime is how long a cached login is used before it is read again: another
	// process may have removed or replaced it.
	freshTime = 5 * time.Second
	// claimTime is the duration of a claim, longer than a renewal takes.
	claimTime = tokenTime + 15*time.Second
	// lookTime is the pause between checks of another worker's renewal.
	lookTime = 100 * time.Millisecond
	// storeTime is the timeout for storing a renewed login, even if the call has
	// ended.
	storeTime = 10 * time.Second
)

// A tokenCache holds the tokens of a login, which all workers share. It never starts a
// login: it returns an error that asks for one.
type tokenCache struct {
	server    Server
	access    Access
	client    *http.Client
	closeIdle func()
	turn      gate // held while reading or renewing
	renewals  sync.WaitGroup

	mu   sync.Mutex
	held login
	row  mcpdef.Login
	read time.Time // when row was read; zero: never
}

func newTokenCache(s Server, access Access) *tokenCache {
	client, closeIdle := newAuthClient(s)
	return &tokenCache{server: s, access: access, client: client, closeIdle: closeIdle, turn: newGate()}
}

func (k *tokenCache) close() {
	k.renewals.Wait()
	k.closeIdle()
}

// needsLogin returns an AuthError that asks for a login.
func (k *tokenCache) needsLogin(format string, args ...any) error {
	return &AuthError{Why: fmt.Sprintf(format, args...), Login: k.server.Name}
}

func (k *tokenCache) token(ctx context.Context) (string, error) {
	if access, ok := k.current(freshTime); ok {
		return access, nil
	}
	return k.settle(ctx, func() bool { _, ok := k.current(0); return ok }, "")
}

// current returns the token if it is still valid and was read less than age
// ago. If age is 0, any age will do.
func (k *tokenCache) current(age time.Duration) (access string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh := !k.read.IsZero() && (age == 0 || time.Since(k.read) < age)
	return k.held.Access, fresh && k.held.Access != "" && !lapsing(k.held.Expiry, k.held.Given)
}

// settle reads the login, and renews it if its token is the refused one or is
// about to expire. good reports whether the held token may be used when the
// login cannot be read.
func (k *tokenCache) settle(ctx context.Context, good func() bool, refused string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, authTime)
	defer stop()
	if err := k.turn.enter(ctx); err != nil {
		return "", noToken(err)
	}
	defer k.turn.leave()
	if refused == "" {
		if access, ok := k.current(freshTime); ok { // another caller has read it
			return access, nil
		}
	}
	for renewals := 0; ; {
		l, err := k.reread(ctx)
		_, isAuth := errors.AsType[*AuthError](err)
		switch {
		case err != nil && !isAuth && good():
			return l.Access, nil
		case err != nil:
			return "", noToken(err)
		case l.Access != refused && !lapsing(l.Expiry, l.Given):
			return l.Access, nil
		case renewals == maxRenewals:
			return "", k.needsLogin("its authorization server gives tokens that are refused, or are over at once")
		}
		done, err := k.renewOnce(ctx, l)
		if err != nil {
			return "", noToken(err)
		}
		if done {
			renewals++
			continue
		}
		select { // another worker renews it
		case <-time.After(lookTime):
		case <-ctx.Done():
			return "", noToken(errors.New("another worker has not renewed the login in time"))
		}
	}
}

// reread reads the stored login into the cache. With an error that is no
// AuthError it returns the login held before.
func (k *tokenCache) reread(ctx context.Context) (login, error) {
	if k.access.Logins == nil {
		return login{}, errNoLogins
	}
	row, err := k.access.Logins.MCPLogin(ctx, k.server.Name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && !errors.Is(err, turnkeeper.ErrNotFound) {
		return k.held, fmt.Errorf("the login cannot be read: %w", err)
	}
	if err == nil && row.Revision == k.row.Revision && !k.read.IsZero() && row.Lapsed == "" {
		k.read, k.row = time.Now(), row
		return k.held, nil
	}
	k.held, k.row, k.read = login{}, mcpdef.Login{}, time.Time{}
	switch {
	case err != nil:
		return login{}, k.needsLogin("nobody is logged in to it")
	case row.Lapsed != "":
		return login{}, k.needsLogin("the login has ended (%s)", row.Lapsed)
	}
	l, err := unseal(k.access.Key, k.server.Name, row.Sealed)
	switch {
	case err != nil:
		return login{}, k.needsLogin("the login cannot be opened: %v", err)
	case l.URL != k.server.URL:
		return login{}, k.needsLogin("the login was made for another address of the server")
	}
	k.access.learn(l.Access)
	k.access.learn(l.Refresh)
	k.access.learn(l.Secret)
	k.held, k.row, k.read = l, row, time.Now()
	return l, nil
}

// renewOnce renews the login. done is false if another worker is renewing it.
func (k *tokenCache) renewOnce(ctx context.Context, l login) (done bool, err error) {
	if l.Refresh == "" {
		return false, k.needsLogin("the login has expired, and cannot be renewed")
	}
	k.mu.Lock()
	row := k.row
	k.mu.Unlock()
	claim := newID()
	mine, err := k.access.Logins.ClaimMCPLogin(ctx, k.server.Name, row.Revision, claim, claimTime)
	if err != nil || !mine {
		return false, err
	}
	// The renewal continues if the call ends: the authorization server may already
	// have used up the old refresh token.
	result := make(chan error, 1)
	k.renewals.Go(func() { result <- k.exchange(context.WithoutCancel(ctx), row, l, claim) })
	select {
	case err := <-result:
		return true, err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// exchange exchanges the refresh token for new tokens, and stores them.
func (k *tokenCache) exchange(ctx context.Context, row mcpdef.Login, l login, claim string) error {
	asking, stop := context.WithTimeout(withClient(ctx, k.client), tokenTime)
	defer stop()
	c := credential{id: l.ClientID, secret: l.Secret, style: oauth2.AuthStyle(l.Style)}
	token, err := k.server.ask(asking, l.Endpoint, c, nil, url.Values{
		"grant_type": {grantRefresh}, "refresh_token": {l.Refresh}, "resource": {l.Resource},
	})
	keeping, stop := context.WithTimeout(ctx, storeTime)
	defer stop()
	if err != nil {
		return k.giveUp(keeping, claim, err)
	}
	k.access.learn(token.AccessToken)
	k.access.learn(token.RefreshToken)
	l.take(token)
	next, err := l.row(k.access.Key, row, token)
	if err != nil {
		return err
	}
	return k.save(keeping, next, claim)
}

// save stores a renewed login. It retries until ctx ends, because the old
// refresh token may be used up. If the claim has expired, another worker has
// taken over: its login counts, and is read next.
func (k *tokenCache) save(ctx context.Context, next mcpdef.Login, claim string) error {
	for {
		_, err := k.access.Logins.RenewMCPLogin(ctx, next, claim)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(lookTime):
		case <-ctx.Done():
			return fmt.Errorf("the renewed login could not be kept: %w", err)
		}
	}
}

// take stores new tokens in l. Without a new refresh token it keeps the old
// one.
func (l *login) take(token *oauth2.Token) {
	l.Access, l.Given, l.Expiry = token.AccessToken, time.Now(), token.Expiry
	if token.RefreshToken != "" {
		l.Refresh = token.RefreshToken
	}
}

// row returns the login as a row to store.
func (l login) row(key []byte, before mcpdef.Login, token *oauth2.Token) (mcpdef.Login, error) {
	sealed, err := l.seal(key, before.Server)
	before.Sealed, before.Expires, before.Renewable, before.Lapsed = sealed, l.Expiry, l.Refresh != "", ""
	if granted, ok := token.Extra("scope").(string); ok {
		before.Scopes = cleanScopes(strings.Fields(granted))
	}
	return before, err
}

// giveUp ends a claim without new tokens. If the authorization server no longer
// accepts the old ones, it marks the login as lapsed for all workers.
func (k *tokenCache) giveUp(ctx context.Context, claim string, why error) error {
	refused, ok := errors.AsType[*refusedGrant](why)
	over := ok && slices.Contains([]string{"invalid_grant", "invalid_client", "unauthorized_client"}, refused.code)
	lapsed := ""
	if over {
		lapsed = refused.Error()
	}
	if err := k.access.Logins.ReleaseMCPLogin(ctx, k.server.Name, claim, lapsed); err != nil {
		return fmt.Errorf("%w; and this could not be noted: %w", why, err)
	}
	if over {
		return k.needsLogin("the login has ended (%s)", lapsed)
	}
	return why
}

func (k *tokenCache) renew(ctx context.Context, used string, why refusal) (bool, error) {
	switch {
	case why.status == http.StatusUnauthorized:
		_, err := k.settle(ctx, func() bool { return false }, used)
		return err == nil, err
	case !why.insufficientScope():
		return false, nil
	}
	return k.want(ctx, used, why.scopes)
}

// want stores the scopes that a server asks for. Only a person can get them;
// again is true if one has done so in the meantime.
func (k *tokenCache) want(ctx context.Context, used string, scopes []string) (again bool, err error) {
	ctx, stop := context.WithTimeout(ctx, authTime)
	defer stop()
	if err := k.turn.enter(ctx); err != nil {
		return false, noToken(err)
	}
	defer k.turn.leave()
	l, err := k.reread(ctx)
	switch {
	case err != nil:
		return false, noToken(err)
	case l.Access != used:
		return true, nil
	}
	k.mu.Lock()
	wanted := k.row.Wanted
	k.mu.Unlock()
	if !contains(wanted, scopes) {
		if err := k.access.Logins.WantMCPScopes(ctx, k.server.Name, union(wanted, scopes)); err != nil {
			return false, noToken(fmt.Errorf("it wants more scopes, and that could not be noted: %w", err))
		}
	}
	return false, k.needsLogin("the login does not cover what it wants (scopes %q)", strings.Join(scopes, " "))
}
