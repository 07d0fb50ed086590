package main

import (
	"context"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/tools/mcp/mcpdef"
)

// logins keeps the login of the one server during a scenario.
type logins struct {
	mu    sync.Mutex
	login mcpdef.Login
	claim string
}

func (l *logins) MCPLogin(context.Context, string) (mcpdef.Login, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.login.Revision == 0 {
		return mcpdef.Login{}, turnkeeper.ErrNotFound
	}
	return l.login, nil
}

func (l *logins) SaveMCPLogin(_ context.Context, login mcpdef.Login) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	login.Revision, login.LoggedInAt = l.login.Revision+1, time.Now()
	l.login, l.claim = login, ""
	return nil
}

func (l *logins) ClaimMCPLogin(_ context.Context, _ string, revision int64, claim string,
	_ time.Duration) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claim != "" || l.login.Revision != revision {
		return false, nil
	}
	l.claim = claim
	return true, nil
}

func (l *logins) RenewMCPLogin(_ context.Context, login mcpdef.Login, claim string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claim != claim {
		return false, nil
	}
	login.Revision, login.RenewedAt = l.login.Revision+1, time.Now()
	l.login, l.claim = login, ""
	return true, nil
}

func (l *logins) ReleaseMCPLogin(_ context.Context, _, claim, lapsed string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claim == claim {
		l.claim, l.login.Lapsed = "", lapsed
	}
	return nil
}

func (l *logins) WantMCPScopes(_ context.Context, _ string, scopes []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.login.Wanted = scopes
	return nil
}

func (l *logins) ForgetMCPLogin(context.Context, string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.login.Revision != 0
	l.login, l.claim = mcpdef.Login{}, ""
	return was, nil
}
