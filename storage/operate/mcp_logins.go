package operate

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// MCPLogins are the logins to MCP servers that are kept, by server.
func (s *MCPStore) MCPLogins(ctx context.Context) ([]turnkeeper.MCPLogin, error) {
	rows, err := s.db.Q.MCPLogins(ctx, "")
	return dbrow.Map(rows, mcpLoginOf), pg.Translate(err)
}

// MCPLogin is the login to a server, or ErrNotFound.
func (s *MCPStore) MCPLogin(ctx context.Context, server string) (turnkeeper.MCPLogin, error) {
	rows, err := s.db.Q.MCPLogins(ctx, server)
	if err == nil && (server == "" || len(rows) == 0) {
		return turnkeeper.MCPLogin{}, turnkeeper.ErrNotFound
	}
	if err != nil {
		return turnkeeper.MCPLogin{}, pg.Translate(err)
	}
	return mcpLoginOf(rows[0]), nil
}

func mcpLoginOf(r dbsqlc.TurnkeeperMcpLogin) turnkeeper.MCPLogin {
	return turnkeeper.MCPLogin{
		Server: r.Server, Revision: r.Revision, Sealed: r.Sealed, Scopes: r.Scopes, Wanted: r.Wanted, Expires: dbrow.OrZero(r.ExpiresAt),
		Renewable: r.Renewable, LoggedInAt: r.LoggedInAt, RenewedAt: dbrow.OrZero(r.RenewedAt), Lapsed: dbrow.OrZero(r.Lapsed),
	}
}

// SaveMCPLogin keeps a new login in place of whatever was there.
func (s *MCPStore) SaveMCPLogin(ctx context.Context, l turnkeeper.MCPLogin) error {
	return pg.Translate(s.db.Q.SaveMCPLogin(ctx, dbsqlc.SaveMCPLoginParams{
		Server: l.Server, Sealed: l.Sealed, Scopes: s.db.CleanAll(l.Scopes), ExpiresAt: dbrow.OrNullTime(l.Expires), Renewable: l.Renewable,
	}))
}

// ClaimMCPLogin lets the caller alone renew a login, for hold. It is false where
// somebody else does, or where the login is not of that revision any more.
func (s *MCPStore) ClaimMCPLogin(ctx context.Context, server string, revision int64, claim string, hold time.Duration) (bool, error) {
	n, err := s.db.Q.ClaimMCPLogin(ctx, &claim, hold, server, revision)
	return n > 0, pg.Translate(err)
}

// RenewMCPLogin keeps what a claim was for, and ends it. It is false where the claim
// had run out and somebody else has taken over, or the login is gone.
func (s *MCPStore) RenewMCPLogin(ctx context.Context, l turnkeeper.MCPLogin, claim string) (bool, error) {
	n, err := s.db.Q.RenewMCPLogin(ctx, dbsqlc.RenewMCPLoginParams{
		Server: l.Server, Sealed: l.Sealed, Scopes: s.db.CleanAll(l.Scopes), ExpiresAt: dbrow.OrNullTime(l.Expires), Renewable: l.Renewable, Claim: &claim,
	})
	return n > 0, pg.Translate(err)
}

// ReleaseMCPLogin ends a claim. lapsed is why the login does not hold any more; empty:
// nothing is known of that.
func (s *MCPStore) ReleaseMCPLogin(ctx context.Context, server, claim, lapsed string) error {
	return pg.Translate(s.db.Q.ReleaseMCPLogin(ctx, dbrow.OrNull(s.db.Clean(lapsed)), server, &claim))
}

// WantMCPScopes notes scopes that a server has asked for, for the next login.
func (s *MCPStore) WantMCPScopes(ctx context.Context, server string, scopes []string) error {
	return pg.Translate(s.db.Q.WantMCPScopes(ctx, s.db.CleanAll(scopes), server))
}

// ForgetMCPLogin removes a login. It is false where there was none.
func (s *MCPStore) ForgetMCPLogin(ctx context.Context, server string) (bool, error) {
	n, err := s.db.Q.ForgetMCPLogin(ctx, server)
	return n > 0, pg.Translate(err)
}
