package setup

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"

	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
	"turnkeeper/tools/mcp"
	"turnkeeper/tools/mcp/mcpdef"
)

// An mcpStore stores tools of and logins to MCP servers.
type mcpStore interface {
	mcp.Store
	mcp.LoginStore
}

// mcpOAuth converts the OAuth settings of a server; nil for nil.
func mcpOAuth(cfg *config.Config, o *config.MCPOAuth) *mcp.OAuth {
	if o == nil {
		return nil
	}
	return &mcp.OAuth{
		Grant: mcp.Grant(o.Grant), ClientID: o.ClientID, ClientMetadataURL: o.ClientMetadataURL,
		ClientSecret: o.ClientSecret.Reveal(),
		PrivateKey:   o.PrivateKey, KeyID: o.KeyID, Issuer: o.Issuer, TokenEndpoint: o.TokenEndpoint, Scopes: o.Scopes,
		RedirectPort: o.RedirectPort,
		Identity: mcp.Identity{
			TokenEndpoint: o.Identity.TokenEndpoint, ClientID: o.Identity.ClientID,
			ClientSecret: o.Identity.ClientSecret.Reveal(),
			Token: func() (string, error) {
				token, err := o.Identity.Token()
				if err == nil {
					cfg.Learn(token.Reveal())
				}
				return token.Reveal(), err
			},
		},
	}
}

// mcpAccess returns what the MCP client needs to get tokens. Received tokens are masked from then on.
func mcpAccess(cfg *config.Config, logins mcp.LoginStore) mcp.Access {
	key, _ := base64.StdEncoding.DecodeString(cfg.MCPLoginKey.Reveal()) // checked when the settings were loaded
	return mcp.Access{Logins: logins, Key: key, Learn: cfg.Learn}
}

// MCPWantsLogin reports whether people must log in to a server. It returns an error if the server is not
// configured.
func MCPWantsLogin(cfg *config.Config, server string) (bool, error) {
	s, err := mcpServer(cfg, server)
	return s.OAuth != nil && s.OAuth.Grant == mcp.GrantAuthorizationCode, err
}

// MCPLoginsUsed reports whether agents use a server that people must log in to.
func MCPLoginsUsed(cfg *config.Config, agents []*agentdef.Definition) bool {
	used := usedMCPServers(agents)
	return slices.ContainsFunc(mcpServers(cfg), func(s mcp.Server) bool {
		return used[s.Name] && s.OAuth != nil && s.OAuth.Grant == mcp.GrantAuthorizationCode
	})
}

func mcpServer(cfg *config.Config, name string) (mcp.Server, error) {
	all := mcpServers(cfg)
	i := slices.IndexFunc(all, func(s mcp.Server) bool { return s.Name == name })
	if i < 0 {
		return mcp.Server{}, fmt.Errorf("the MCP server %q is not configured", name)
	}
	return all[i], nil
}

// LogInToMCP lets a person log in to an MCP server and stores the login. It returns the login and the
// number of the server's tools.
func LogInToMCP(ctx context.Context, cfg *config.Config, store mcp.LoginStore, server string,
	person mcp.Person) (mcpdef.Login, int, error) {
	s, err := mcpServer(cfg, server)
	if err != nil {
		return mcpdef.Login{}, 0, err
	}
	return mcp.Login(ctx, s, mcpAccess(cfg, store), person)
}

// LogOutOfMCP deletes the login to an MCP server: see mcp.Logout.
func LogOutOfMCP(ctx context.Context, cfg *config.Config, store mcp.LoginStore,
	server string) (was bool, failure, err error) {
	s, err := mcpServer(cfg, server)
	if err != nil { // a removed server may still have a stored login
		s = mcp.Server{Name: server}
	}
	return mcp.Logout(ctx, s, mcpAccess(cfg, store))
}

// MCPRedirectPort returns the local port that a login is redirected to; 0: any.
func MCPRedirectPort(cfg *config.Config, server string) int {
	s, _ := mcpServer(cfg, server)
	if s.OAuth == nil {
		return 0
	}
	return s.OAuth.RedirectPort
}
