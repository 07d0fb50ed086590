package turnctl

import (
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
		return list(s, cmd, look, viewToken, showTokens, "no tokens: the HTTP API answers this machine only")
	}
	cmd := &cobra.Command{
		Use: "tokens", Short: "List, make and revoke tokens of the HTTP API", Args: cobra.NoArgs,
		Long: `List, make and revoke tokens of the HTTP API. A token is printed once, when it is
made: the database has only a hash of it. Who has lost one revokes it and makes
another. What is revoked is refused from then on.`,
		Example: `  turnctl tokens create shop --scopes send --agents clerk
  turnctl tokens create board --scopes read --expires 720h
  turnctl tokens revoke shop`,
		RunE: show,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "List tokens", Args: cobra.NoArgs, RunE: show, Example: "  turnctl tokens list -o json"},
		createTokenCommand(s),
		&cobra.Command{
			Use: "revoke NAME", Short: "Revoke a token", Args: shell.ExactArgs(1), Example: "  turnctl tokens revoke shop",
			RunE: func(cmd *cobra.Command, args []string) error { return revokeToken(cmd.Context(), s, args[0]) },
		},
	)
	return cmd
}

func createTokenCommand(s *shell.Session) *cobra.Command {
	t := operate.Token{}
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a token, and print it once", Args: shell.ExactArgs(1),
		Example: `  turnctl tokens create shop --scopes send --agents clerk
  turnctl tokens create board --scopes read --expires 720h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Name = args[0]
			if err := checkToken(t); err != nil {
				return err
			}
			return createToken(cmd.Context(), s, t)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&t.Scopes, "scopes", nil, "what it may do, with commas between: "+strings.Join(views.Scopes(), ", "))
	f.StringSliceVar(&t.Agents, "agents", nil, "the agents that it is for, with commas between; none: all")
	shell.DurationFlag(f, &t.Lifetime, "expires", 0, "after how long it expires, such as 720h; 0: never")
	return cmd
}

// checkToken says what is wrong with a token that is to be made.
func checkToken(t operate.Token) error {
	if err := turnkeeper.CheckAgentName(t.Name); err != nil {
		return shell.Misused("the token's name %q: use at most %d of a-z, 0-9, _ and -, starting with a letter or digit", t.Name, turnkeeper.MaxNameLength)
	}
	if len(t.Scopes) == 0 {
		return shell.Misused("say with --scopes what the token may do: %s", strings.Join(views.Scopes(), ", "))
	}
	for _, scope := range t.Scopes {
		if err := shell.OneOf("--scopes", scope, views.Scopes()); err != nil || scope == "" {
			return shell.Misused("--scopes has %q: it must be of %s", scope, strings.Join(views.Scopes(), ", "))
		}
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
			return shell.Misused("there is a token %q: revoke it first, or take another name", t.Name)
		}
		if err != nil {
			return err
		}
		view := newTokenView{viewToken(made), secret}
		return s.Print(view, func() {
			s.Out.Line("%s", secret)
			s.Err.Line("this is the only time that the token is shown; send it as Authorization: Bearer TOKEN")
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
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // to the minute
}

// newTokenView is a token as it is shown once.
type newTokenView struct {
	tokenView
	Token string `json:"token"`
}

func viewToken(t operate.Token) tokenView {
	return tokenView{t.Name, t.Scopes, t.Agents, t.CreatedAt, views.OrNull(t.ExpiresAt), views.OrNull(t.LastUsedAt)}
}

func showTokens(s *term.Screen, c term.Clock, tokens []operate.Token) {
	t := term.NewTable("TOKEN", "SCOPES", "AGENTS", "MADE", "EXPIRES", "LAST USED")
	for _, token := range tokens {
		agents := "all"
		if token.Agents != nil {
			agents = strings.Join(token.Agents, ", ")
		}
		t.Add(token.Name, strings.Join(token.Scopes, ", "), agents, c.At(token.CreatedAt), c.At(token.ExpiresAt), c.At(token.LastUsedAt))
	}
	t.Print(s)
}
