package turnctl

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func tokensCommand(s *shell.Session) *cobra.Command {
	look := func(ctx context.Context, store *operate.Store) ([]operate.Token, error) { return store.Tokens(ctx) }
	show := func(cmd *cobra.Command, _ []string) error {
		return list(s, cmd, look, viewToken, showTokens,
			"no tokens: the HTTP API answers requests from this machine alone, or none if listen or allowed_hosts requires a token")
	}
	cmd := &cobra.Command{
		Use: "tokens", Short: "List, create and revoke tokens of the HTTP API", Args: cobra.NoArgs,
		Long: `List, create and revoke tokens of the HTTP API. A token is printed only once, when it
is created: the database stores a hash. If you lose a token, revoke it and create
another. A revoked token is refused at once.`,
		Example: `  turnctl tokens create shop --scopes send --agents clerk
  turnctl tokens create board --scopes read --expires 720h
  turnctl tokens create ann --scopes read,answer
  turnctl tokens create anna-phone --scopes send,read --agents clerk --user anna
  turnctl tokens revoke shop`,
		RunE: show,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "List tokens", Args: cobra.NoArgs, RunE: show,
			Example: "  turnctl tokens list -o json"},
		createTokenCommand(s),
		&cobra.Command{
			Use: "revoke NAME", Short: "Revoke a token", Args: shell.ExactArgs(1),
			Example: "  turnctl tokens revoke shop",
			RunE:    func(cmd *cobra.Command, args []string) error { return revokeToken(cmd.Context(), s, args[0]) },
		},
	)
	return cmd
}

func createTokenCommand(s *shell.Session) *cobra.Command {
	t := operate.Token{}
	var user userFlag
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a token, and print it once", Args: shell.ExactArgs(1),
		Example: `  turnctl tokens create shop --scopes send --agents clerk
  turnctl tokens create board --scopes read --expires 720h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Name, t.User = args[0], user.name
			if err := checkToken(t); err != nil {
				return err
			}
			return createToken(cmd.Context(), s, t)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&t.Scopes, "scopes", nil, "what it may do, separated by commas: "+strings.Join(
		views.Scopes(), ", "))
	f.Var(&user, "user", "bind it to this user: it sends as, and sees, only this one; none: all")
	f.StringSliceVar(&t.Agents, "agents", nil, "the agents it may access, separated by commas; none: all")
	shell.DurationFlag(f, &t.Lifetime, "expires", 0, "expires after this time, such as 720h; 0: never")
	return cmd
}

// checkToken validates a new token.
func checkToken(t operate.Token) error {
	if err := turnkeeper.CheckAgentName(t.Name); err != nil {
		return shell.Misused(
			"the token's name %q: use at most %d of a-z, 0-9, _ and -, starting with a letter or digit", t.Name,
			turnkeeper.MaxNameLength)
	}
	if len(t.Scopes) == 0 {
		return shell.Misused("--scopes is required: %s", strings.Join(views.Scopes(), ", "))
	}
	for _, scope := range t.Scopes {
		if err := shell.OneOf("--scopes", scope, views.Scopes()); err != nil || scope == "" {
			return shell.Misused("--scopes has %q: it must be one of %s", scope, strings.Join(views.Scopes(), ", "))
		}
	}
	if !views.CanCombine(t.Scopes) {
		return shell.Misused(
			"--scopes: one token cannot have both send and answer: who sends messages must not answer what their turns ask; create two tokens")
	}
	for _, agent := range t.Agents {
		if err := turnkeeper.CheckAgentName(agent); err != nil {
			return shell.Misused("--agents: %s", err)
		}
	}
	if t.Lifetime < 0 {
		return shell.Misused("--expires must not be negative")
	}
	return nil
}

func createToken(ctx context.Context, s *shell.Session, t operate.Token) error {
	slices.Sort(t.Scopes)
	t.Scopes = slices.Compact(t.Scopes)
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		made, secret, err := db.Store.CreateToken(ctx, t)
		if errors.Is(err, operate.ErrTokenExists) {
			return shell.Misused("token %q already exists: revoke it first, or use another name", t.Name)
		}
		if err != nil {
			return err
		}
		view := newTokenView{viewToken(made), secret}
		return s.Print(view, func() {
			s.Out.Line("%s", secret)
			s.Err.Line("the token is not shown again; send it as Authorization: Bearer TOKEN")
		})
	})
}

func revokeToken(ctx context.Context, s *shell.Session, name string) error {
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		err := db.Store.RevokeToken(ctx, name)
		if errors.Is(err, turnkeeper.ErrNotFound) {
			return shell.NotFound(`there is no token %q: "turnctl tokens" lists them`, name)
		}
		if err != nil {
			return err
		}
		return s.Print(map[string]string{"revoked": name}, func() { s.Out.Line("token %s revoked", term.Plain(name)) })
	})
}

type tokenView struct {
	Name       string     `json:"name"`
	Scopes     []string   `json:"scopes"`
	Agents     []string   `json:"agents"` // null: all
	User       string     `json:"user"`   // empty: all
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // to the minute
}

// newTokenView is the JSON output of tokens create.
type newTokenView struct {
	tokenView
	Token string `json:"token"`
}

func viewToken(t operate.Token) tokenView {
	return tokenView{t.Name, t.Scopes, t.Agents, t.User, t.CreatedAt, views.OrNull(t.ExpiresAt),
		views.OrNull(t.LastUsedAt)}
}

func showTokens(s *term.Screen, c term.Clock, tokens []operate.Token) {
	t := term.NewTable("TOKEN", "SCOPES", "AGENTS", "USER", "CREATED", "EXPIRES", "LAST USED")
	for _, token := range tokens {
		agents := "all"
		if token.Agents != nil {
			agents = strings.Join(token.Agents, ", ")
		}
		t.Add(token.Name, strings.Join(token.Scopes, ", "), agents, cmp.Or(token.User, "all"), c.At(token.CreatedAt),
			c.At(token.ExpiresAt), c.At(token.LastUsedAt))
	}
	t.Print(s)
}
