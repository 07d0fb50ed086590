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

// A LoginStore keeps people's logins, one for each server, for all workers.
// Implementations are safe for concurrent use.
type LoginStore interface {
	// MCPLogin is the login of a server, or turnkeeper.ErrNotFound.
	MCPLogin(ctx context.Context, server string) (mcpdef.Login, error)
	// SaveMCPLogin keeps a new login in place of whatever was there.
	SaveMCPLogin(ctx context.Context, l mcpdef.Login) error
	// ClaimMCPLogin lets the caller alone renew a login, for hold. It is false where
	// somebody else does, or where the login is not of that revision any more.
	ClaimMCPLogin(ctx context.Context, server string, revision int64, claim string, hold time.Duration) (bool, error)
	// RenewMCPLogin keeps what a claim was for, and ends it. It is false where the
	// claim had run out.
	RenewMCPLogin(ctx context.Context, l mcpdef.Login, claim string) (bool, error)
	// ReleaseMCPLogin ends a claim. lapsed is why the login does not hold any more;
	// empty: nothing is known of that.
	ReleaseMCPLogin(ctx context.Context, server, claim, lapsed string) error
	// WantMCPScopes notes scopes for the next login.
	WantMCPScopes(ctx context.Context, server string, scopes []string) error
	// ForgetMCPLogin removes a login. It is false where there was none.
	ForgetMCPLogin(ctx context.Context, server string) (bool, error)
}

// Times of a tokenCache.
const (
	// freshTime is how long what was read of a login counts: it may be forgotten, or
	// made anew, by somebody else.
	freshTime = 5 * time.Second
	// claimTime bounds a renewal: more than what it may take.
	claimTime = tokenTime + 15*time.Second
	// lookTime is the pause between looks at what another worker does.
	lookTime = 100 * time.Millisecond
	// storeTime bounds what must be kept, whatever becomes of the call.
	storeTime = 10 * time.Second
)

// A tokenCache holds the tokens of a login, which all workers share. It never starts a
// login: it returns an error that asks for one.
type tokenCache struct {
	server    Server
	access    Access
	client    *http.Client
	closeIdle func()
	turn      gate // who reads or renews
	renewals  sync.WaitGroup

	mu   sync.Mutex
	held login
	row  mcpdef.Login
	read time.Time // when row was; zero: never
}

func newTokenCache(s Server, access Access) *tokenCache {
	client, closeIdle := newAuthClient(s)
	return &tokenCache{server: s, access: access, client: client, closeIdle: closeIdle, turn: newGate()}
}

func (k *tokenCache) close() {
	k.renewals.Wait()
	k.closeIdle()
}

// needsLogin says that a person must act, and why.
func (k *tokenCache) needsLogin(format string, args ...any) error {
	return &AuthError{Why: fmt.Sprintf(format, args...), Login: k.server.Name}
}

func (k *tokenCache) token(ctx context.Context) (string, error) {
	if access, ok := k.current(freshTime); ok {
		return access, nil
	}
	return k.settle(ctx, func() bool { _, ok := k.current(0); return ok }, "")
}

// current is the token, if it may be used and was looked at not longer ago than age;
// 0: whenever that was.
func (k *tokenCache) current(age time.Duration) (access string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh := !k.read.IsZero() && (age == 0 || time.Since(k.read) < age)
	return k.held.Access, fresh && k.held.Access != "" && !lapsing(k.held.Expiry, k.held.Given)
}

// settle reads the login, and has it renewed where its token is the refused one, or
// lapses. good says whether what is held already will do where nothing can be read.
func (k *tokenCache) settle(ctx context.Context, good func() bool, refused string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, authTime)
	defer stop()
	if err := k.turn.enter(ctx); err != nil {
		return "", noToken(err)
	}
	defer k.turn.leave()
	if refused == "" {
		if access, ok := k.current(freshTime); ok { // somebody was faster
			return access, nil
		}
	}
	for renewals := 0; ; {
		l, err := k.reread(ctx)
		_, told := errors.AsType[*AuthError](err)
		switch {
		case err != nil && !told && good():
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

// reread takes over what is kept of the login. With an error that is no AuthError it
// returns what was held before.
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

// renewOnce has the login renewed by this worker. done is false where another does.
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
	// What is under way is not given up with the call: the authorization server may have
	// taken the old refresh token for good.
	result := make(chan error, 1)
	k.renewals.Go(func() { result <- k.exchange(context.WithoutCancel(ctx), row, l, claim) })
	select {
	case err := <-result:
		return true, err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// exchange gives the refresh token for new tokens, and keeps them.
func (k *tokenCache) exchange(ctx context.Context, row mcpdef.Login, l login, claim string) error {
	asking, stop := context.WithTimeout(withClient(ctx, k.client), tokenTime)
	defer stop()
	c := credential{id: l.ClientID, secret: l.Secret, style: oauth2.AuthStyle(l.Style)}
	token, err := ask(asking, l.Endpoint, c, nil, url.Values{
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

// save keeps a renewed login, and goes on trying: the old refresh token may be of no
// use any more. Where the claim had run out somebody has taken over: what they keep
// counts, and is read next.
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

// take takes tokens over. A refresh token that is not replaced stays.
func (l *login) take(token *oauth2.Token) {
	l.Access, l.Given, l.Expiry = token.AccessToken, time.Now(), token.Expiry
	if token.RefreshToken != "" {
		l.Refresh = token.RefreshToken
	}
}

// row is the login as it is kept.
func (l login) row(key []byte, before mcpdef.Login, token *oauth2.Token) (mcpdef.Login, error) {
	sealed, err := l.seal(key, before.Server)
	before.Sealed, before.Expires, before.Renewable, before.Lapsed = sealed, l.Expiry, l.Refresh != "", ""
	if told, ok := token.Extra("scope").(string); ok {
		before.Scopes = cleanScopes(strings.Fields(told))
	}
	return before, err
}

// giveUp ends a claim without new tokens. Where the authorization server does not know
// the old ones any more, the login is over for all workers.
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

// want notes the scopes that a server asks for. Only a person can get them; again is
// true where one has done so meanwhile.
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
