package operate

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
	"turnkeeper/tools/mcp/mcpdef"
)

// MCPLogins lists the logins to MCP servers, by server.
func (s *MCPStore) MCPLogins(ctx context.Context) ([]mcpdef.Login, error) {
	rows, err := s.db.Q.MCPLogins(ctx, "")
	return dbrow.Map(rows, mcpLoginOf), pg.Translate(err)
}

// MCPLogin reads the login to a server, or fails with ErrNotFound.
func (s *MCPStore) MCPLogin(ctx context.Context, server string) (mcpdef.Login, error) {
	rows, err := s.db.Q.MCPLogins(ctx, server)
	if err == nil && (server == "" || len(rows) == 0) {
		return mcpdef.Login{}, turnkeeper.ErrNotFound
	}
	if err != nil {
		return mcpdef.Login{}, pg.Translate(err)
	}
	return mcpLoginOf(rows[0]), nil
}

func mcpLoginOf(r dbsqlc.TurnkeeperMcpLogin) mcpdef.Login {
	return mcpdef.Login{
		Server: r.Server, Revision: r.Revision, Sealed: r.Sealed, Scopes: r.Scopes, Wanted: r.Wanted,
		Expires:   dbrow.OrZero(r.ExpiresAt),
		Renewable: r.Renewable, LoggedInAt: r.LoggedInAt, RenewedAt: dbrow.OrZero(r.RenewedAt),
		Lapsed: dbrow.OrZero(r.Lapsed),
	}
}

// SaveMCPLogin stores a login, replacing the previous one.
func (s *MCPStore) SaveMCPLogin(ctx context.Context, l mcpdef.Login) error {
	return pg.Translate(s.db.Q.SaveMCPLogin(ctx, dbsqlc.SaveMCPLoginParams{
		Server: l.Server, Sealed: l.Sealed, Scopes: s.db.CleanAll(l.Scopes), ExpiresAt: dbrow.OrNullTime(l.Expires),
		Renewable: l.Renewable,
	}))
}

// ClaimMCPLogin claims a login for renewal, for the time hold. It returns false if
// another process has claimed it, or if the login no longer has that revision.
func (s *MCPStore) ClaimMCPLogin(ctx context.Context, server string, revision int64, claim string,
	hold time.Duration) (bool, error) {
	n, err := s.db.Q.ClaimMCPLogin(ctx, &claim, hold, server, revision)
	return n > 0, pg.Translate(err)
}

// RenewMCPLogin stores the renewed login and ends the claim. It returns false if the
// claim expired and another process took over, or if the login was deleted.
func (s *MCPStore) RenewMCPLogin(ctx context.Context, l mcpdef.Login, claim string) (bool, error) {
	n, err := s.db.Q.RenewMCPLogin(ctx, dbsqlc.RenewMCPLoginParams{
		Server: l.Server, Sealed: l.Sealed, Scopes: s.db.CleanAll(l.Scopes), ExpiresAt: dbrow.OrNullTime(l.Expires),
		Renewable: l.Renewable, Claim: &claim,
	})
	return n > 0, pg.Translate(err)
}

// ReleaseMCPLogin ends a claim without a renewal. lapsed is why the login is no longer
// valid; empty: it may still be valid.
func (s *MCPStore) ReleaseMCPLogin(ctx context.Context, server, claim, lapsed string) error {
	return pg.Translate(s.db.Q.ReleaseMCPLogin(ctx, dbrow.OrNull(s.db.Clean(lapsed)), server, &claim))
}

// WantMCPScopes records scopes that a server asked for, for the next login.
func (s *MCPStore) WantMCPScopes(ctx context.Context, server string, scopes []string) error {
	return pg.Translate(s.db.Q.WantMCPScopes(ctx, s.db.CleanAll(scopes), server))
}

// ForgetMCPLogin deletes a login. It returns false if there is none.
func (s *MCPStore) ForgetMCPLogin(ctx context.Context, server string) (bool, error) {
	n, err := s.db.Q.ForgetMCPLogin(ctx, server)
	return n > 0, pg.Translate(err)
}
