package turnctl

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
	"turnkeeper/tools/mcp"
	"turnkeeper/tools/mcp/mcpdef"
)

func loginMCPCommand(s *shell.Session) *cobra.Command {
	var paste bool
	within := 10 * time.Minute
	cmd := &cobra.Command{
		Use: "login SERVER", Short: "Log in to a server, for all workers", Args: shell.ExactArgs(1),
		Long: `Log in to an MCP server with oauth.grant authorization_code. The login address is
printed on standard error: open it in a browser on this machine. If the browser is
on another machine, use --paste: after the login the browser shows an error; paste
the address that it then shows.

The tokens are stored in the database, encrypted with mcp_login_key, and workers
renew them. They replace those of an earlier login; workers use them within seconds.`,
		Example: `  turnctl mcp login tracker
  turnctl mcp login tracker --paste`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.WithDatabase(cmd.Context(), func(cfg *config.Config, db *database.Database) error {
				if secret, missing := setup.MissingOfMCP(cfg, args[0]); missing {
					return shell.Misused("%s", secret.Problem)
				}
				ctx, stop := context.WithTimeoutCause(cmd.Context(), within, fmt.Errorf("no login within %s", within))
				defer stop()
				return logInToMCP(ctx, s, cfg, db.Store, args[0], paste)
			})
		},
	}
	cmd.Flags().BoolVar(&paste, "paste", false, "read the browser's final address from standard input")
	cmd.Flags().DurationVar(&within, "within", within, "how long to wait for the login")
	return cmd
}

func logInToMCP(ctx context.Context, s *shell.Session, cfg *config.Config, store *operate.Store, server string,
	paste bool) error {
	if wants, err := setup.MCPWantsLogin(cfg, server); err != nil || !wants {
		if err == nil {
			err = fmt.Errorf("the MCP server %q does not use a login: its oauth.grant is not %s", server,
				config.GrantAuthorizationCode)
		}
		return err
	}
	callback, err := startCallback(ctx, setup.MCPRedirectPort(cfg, server), paste)
	if err != nil {
		return err
	}
	defer callback.close()
	person := mcp.Person{Redirect: callback.redirect}
	if person.Visit = visitByBrowser(s, callback); paste {
		person.Visit = func(ctx context.Context, address string) (*url.URL, error) {
			return visitByPaste(ctx, s, address)
		}
	}
	login, tools, err := setup.LogInToMCP(ctx, cfg, store, server, person)
	if err != nil {
		if cause := context.Cause(ctx); ctx.Err() != nil && cause != nil {
			err = cause
		}
		return fmt.Errorf("not logged in to the MCP server %q: %w", server, err)
	}
	return s.Print(viewMCPLogin(server, login), func() {
		s.Out.Line("logged in to %s: %s, scopes: %s", server, term.Plural(tools, "tool"),
			term.OrDash(strings.Join(login.Scopes, " ")))
		if !login.Renewable {
			s.Out.Line("it cannot be renewed: log in again %s", untilText(login, s.Clock()))
		}
	})
}

func untilText(l mcpdef.Login, c term.Clock) string {
	if l.Expires.IsZero() {
		return "when it expires (the server gave no time)"
	}
	return "after " + c.Moment(l.Expires)
}

func logoutMCPCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "logout SERVER", Short: "Remove the login to a server, for all workers", Args: shell.ExactArgs(1),
		Long: `Remove the login to an MCP server and, if the authorization server supports it,
revoke its tokens. Workers stop using it within seconds.`,
		Example: "  turnctl mcp logout tracker",
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.WithDatabase(cmd.Context(), func(cfg *config.Config, db *database.Database) error {
				if secret, missing := setup.MissingOfMCP(cfg, args[0]); missing {
					return shell.Misused("%s", secret.Problem)
				}
				was, notRevoked, err := setup.LogOutOfMCP(cmd.Context(), cfg, db.Store, args[0])
				switch {
				case err != nil:
					return err
				case !was:
					return fmt.Errorf("nobody is logged in to the MCP server %q", args[0])
				}
				return s.Print(map[string]any{"server": args[0], "revoked": notRevoked == nil}, func() {
					s.Out.Line("logged out of %s", args[0])
					if notRevoked != nil {
						s.Out.Line("the tokens are not revoked, and stay valid until they expire: %s", notRevoked)
					}
				})
			})
		},
	}
}

func mcpKeyCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "key", Short: "Print a new key to encrypt logins", Args: cobra.NoArgs,
		Long: `Print a new key for mcp_login_key in the settings. It cannot decrypt logins that were
encrypted with another key: log in again after a change.`,
		Example: "  turnctl mcp key > logins.key",
		RunE: func(*cobra.Command, []string) error {
			key := make([]byte, config.MCPLoginKeyBytes)
			_, _ = rand.Read(key) // it never fails
			text := base64.StdEncoding.EncodeToString(key)
			return s.Print(map[string]string{"key": text}, func() { s.Out.Line("%s", text) })
		},
	}
}

func loginsMCPCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "logins", Short: "List the logins to servers", Args: cobra.NoArgs, Example: "  turnctl mcp logins -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.WithDatabase(cmd.Context(), func(cfg *config.Config, db *database.Database) error {
				found, err := loginStates(cmd.Context(), cfg, db.Store, "")
				if err != nil {
					return err
				}
				view := func(l loginState) mcpLoginView { return viewMCPLogin(l.Server, l.Login) }
				return s.Print(views.All(found, view), func() {
					if len(found) == 0 {
						s.Err.Line("no logins: no MCP server of the settings has oauth.grant %s",
							config.GrantAuthorizationCode)
						return
					}
					showLogins(s.Out, s.Clock(), found)
				})
			})
		},
	}
}

// A loginState is a server that people log in to, with the stored login, which is zero
// if there is none.
type loginState struct {
	Server string
	mcpdef.Login
}

// loginStates returns the servers that people log in to, and others with a stored login,
// sorted by name. server restricts it to one server, unless empty.
func loginStates(ctx context.Context, cfg *config.Config, store *operate.Store, server string) ([]loginState, error) {
	kept, err := store.MCPLogins(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]mcpdef.Login{}
	for _, l := range kept {
		byName[l.Server] = l
	}
	for name, s := range cfg.MCPServers {
		if _, there := byName[name]; !there && s.OAuth != nil && s.OAuth.Grant == config.GrantAuthorizationCode {
			byName[name] = mcpdef.Login{}
		}
	}
	var states []loginState
	for name, l := range byName {
		if server == "" || server == name {
			states = append(states, loginState{name, l})
		}
	}
	slices.SortFunc(states, func(a, b loginState) int { return strings.Compare(a.Server, b.Server) })
	return states, nil
}

// state returns missing, ended, expired, too narrow or ok.
func (l loginState) state(now time.Time) string {
	switch {
	case l.LoggedInAt.IsZero():
		return "missing"
	case l.Lapsed != "":
		return "ended"
	case !l.Renewable && !l.Expires.IsZero() && now.After(l.Expires):
		return "expired"
	case len(l.Wanted) > 0:
		return "too narrow"
	}
	return "ok"
}

// problem says what is wrong with a login; it returns "" if it is ok.
func (l loginState) problem(now time.Time) string {
	switch l.state(now) {
	case "missing":
		return "nobody is logged in"
	case "ended":
		return "the login has ended (" + l.Lapsed + ")"
	case "expired":
		return "the login has expired"
	case "too narrow":
		return "the login lacks scopes that the server requires (wanted: " + strings.Join(l.Wanted, " ") + ")"
	}
	return ""
}

type mcpLoginView struct {
	Server     string     `json:"server"`
	State      string     `json:"state"`
	Scopes     []string   `json:"scopes"`
	Wanted     []string   `json:"wanted"` // scopes that the server has required since
	Renewable  bool       `json:"renewable"`
	LoggedInAt *time.Time `json:"logged_in_at"`
	RenewedAt  *time.Time `json:"renewed_at"`
	ExpiresAt  *time.Time `json:"expires_at"` // of the current token
	Reason     string     `json:"reason"`     // why it has ended
}

func viewMCPLogin(server string, l mcpdef.Login) mcpLoginView {
	return mcpLoginView{
		Server: server, State: loginState{server, l}.state(time.Now()), Scopes: append([]string{}, l.Scopes...),
		Wanted:    append([]string{}, l.Wanted...),
		Renewable: l.Renewable, LoggedInAt: timeOrNil(l.LoggedInAt), RenewedAt: timeOrNil(l.RenewedAt),
		ExpiresAt: timeOrNil(l.Expires), Reason: l.Lapsed,
	}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func showLogins(s *term.Screen, c term.Clock, all []loginState) {
	t := term.NewTable("SERVER", "STATE", "LOGGED IN", "RENEWED", "SCOPES")
	for _, l := range all {
		state := term.Cell{Text: l.state(c.Now), Tone: term.Dim}
		if state.Text != "ok" {
			state = term.Cell{Text: state.Text, Tone: term.Warned}
		}
		t.Add(l.Server, state, c.Ago(l.LoggedInAt), c.Ago(l.RenewedAt), term.OneLine(strings.Join(l.Scopes, " "), 60))
	}
	t.Print(s)
}

// warnOfLogins warns of missing and invalid logins to configured servers.
func warnOfLogins(ctx context.Context, s *shell.Session, cfg *config.Config, store *operate.Store,
	server string) error {
	states, err := loginStates(ctx, cfg, store, server)
	for _, l := range states {
		if _, configured := cfg.MCPServers[l.Server]; !configured {
			continue
		}
		if problem := l.problem(s.Now()); problem != "" {
			s.Err.Line("%s", s.Err.Paint(term.Warned, fmt.Sprintf("the MCP server %s: %s: run %s mcp login %s",
				l.Server, problem, shell.Command("turnctl"), l.Server)))
		}
	}
	return err
}

// examineLogins reports logins that are unused or lack scopes. examineMCP reports missing
// and ended ones.
func examineLogins(ctx context.Context, d *diagnosis.Report, cfg *config.Config, store *operate.Store, now time.Time) {
	states, err := loginStates(ctx, cfg, store, "")
	if err != nil {
		d.Add(diagnosis.Fail, "MCP logins", err.Error(), "")
		return
	}
	for _, l := range states {
		name := "MCP login " + l.Server
		_, configured := cfg.MCPServers[l.Server]
		switch state := l.state(now); {
		case !configured:
			d.Add(diagnosis.Warn, name, "the settings have no such server", fmt.Sprintf("%s mcp logout %s",
				shell.Command("turnctl"), l.Server))
		case state == "too narrow":
			d.Add(diagnosis.Warn, name, l.problem(now), fmt.Sprintf("%s mcp login %s",
				shell.Command("turnctl"), l.Server))
		case state == "ok":
			d.Add(diagnosis.OK, name, "valid", "")
		}
	}
}

var errNoAddress = errors.New("standard input has no address")
