package storage

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// MCPLogins are the logins to MCP servers that are kept, by server.
func (s *Store) MCPLogins(ctx context.Context) ([]turnkeeper.MCPLogin, error) {
	rows, err := s.q.MCPLogins(ctx, "")
	return mapRows(rows, mcpLoginOf), translate(err)
}

// MCPLogin is the login to a server, or ErrNotFound.
func (s *Store) MCPLogin(ctx context.Context, server string) (turnkeeper.MCPLogin, error) {
	rows, err := s.q.MCPLogins(ctx, server)
	if err == nil && (server == "" || len(rows) == 0) {
		return turnkeeper.MCPLogin{}, turnkeeper.ErrNotFound
	}
	if err != nil {
		return turnkeeper.MCPLogin{}, translate(err)
	}
	return mcpLoginOf(rows[0]), nil
}

func mcpLoginOf(r dbsqlc.TurnkeeperMcpLogin) turnkeeper.MCPLogin {
	return turnkeeper.MCPLogin{
		Server: r.Server, Revision: r.Revision, Sealed: r.Sealed, Scopes: r.Scopes, Wanted: r.Wanted, Expires: orZero(r.ExpiresAt),
		Renewable: r.Renewable, LoggedInAt: r.LoggedInAt, RenewedAt: orZero(r.RenewedAt), Lapsed: orZero(r.Lapsed),
	}
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// SaveMCPLogin keeps a new login in place of whatever was there.
func (s *Store) SaveMCPLogin(ctx context.Context, l turnkeeper.MCPLogin) error {
	return translate(s.q.SaveMCPLogin(ctx, dbsqlc.SaveMCPLoginParams{
		Server: l.Server, Sealed: l.Sealed, Scopes: s.cleanAll(l.Scopes), ExpiresAt: timeOrNull(l.Expires), Renewable: l.Renewable,
	}))
}

// ClaimMCPLogin lets the caller alone renew a login, for hold. It is false where
// somebody else does, or where the login is not of that revision any more.
func (s *Store) ClaimMCPLogin(ctx context.Context, server string, revision int64, claim string, hold time.Duration) (bool, error) {
	n, err := s.q.ClaimMCPLogin(ctx, &claim, hold, server, revision)
	return n > 0, translate(err)
}

// RenewMCPLogin keeps what a claim was for, and ends it. It is false where the claim
// had run out and somebody else has taken over, or the login is gone.
func (s *Store) RenewMCPLogin(ctx context.Context, l turnkeeper.MCPLogin, claim string) (bool, error) {
	n, err := s.q.RenewMCPLogin(ctx, dbsqlc.RenewMCPLoginParams{
		Server: l.Server, Sealed: l.Sealed, Scopes: s.cleanAll(l.Scopes), ExpiresAt: timeOrNull(l.Expires), Renewable: l.Renewable, Claim: &claim,
	})
	return n > 0, translate(err)
}

// ReleaseMCPLogin ends a claim. lapsed is why the login does not hold any more; empty:
// nothing is known of that.
func (s *Store) ReleaseMCPLogin(ctx context.Context, server, claim, lapsed string) error {
	return translate(s.q.ReleaseMCPLogin(ctx, orNull(s.clean(lapsed)), server, &claim))
}

// WantMCPScopes notes scopes that a server has asked for, for the next login.
func (s *Store) WantMCPScopes(ctx context.Context, server string, scopes []string) error {
	return translate(s.q.WantMCPScopes(ctx, s.cleanAll(scopes), server))
}

// ForgetMCPLogin removes a login. It is false where there was none.
func (s *Store) ForgetMCPLogin(ctx context.Context, server string) (bool, error) {
	n, err := s.q.ForgetMCPLogin(ctx, server)
	return n > 0, translate(err)
}

func (s *Store) cleanAll(texts []string) []string {
	clean := make([]string, len(texts))
	for i, text := range texts {
		clean[i] = s.clean(text)
	}
	return clean
}
