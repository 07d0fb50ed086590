package operate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A Token of the HTTP API, without the secret itself.
type Token struct {
	ID       int64
	Name     string
	Scopes   []string
	Agents   []string      // nil: all
	Lifetime time.Duration // when it is made; 0: it does not expire

	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	LastUsedAt time.Time // to the minute; zero: never
}

// ErrTokenExists refuses a second token of the same name.
var ErrTokenExists = errors.New("the name is taken")

// tokenPrefix tells what the secret is for to who finds one.
const tokenPrefix = "tk_"

// CreateToken makes a token and returns its secret, of which only a hash is kept.
// It fails with ErrTokenExists if there is one of this name.
func (s *TokenStore) CreateToken(ctx context.Context, t Token) (Token, string, error) {
	secret := tokenPrefix + strings.ToLower(rand.Text()+rand.Text())
	row, err := s.db.Q.CreateToken(ctx, dbsqlc.CreateTokenParams{
		Name: t.Name, Sha256: hashToken(secret), Scopes: t.Scopes, Agents: t.Agents, Lifetime: t.Lifetime,
	})
	if err = pg.Translate(err); pg.KeyTaken(err) {
		err = fmt.Errorf("%w: there is a token %q", ErrTokenExists, t.Name)
	}
	return tokenOf(row), secret, err
}

// Tokens lists all tokens by name, expired ones too.
func (s *TokenStore) Tokens(ctx context.Context) ([]Token, error) {
	rows, err := s.db.Q.ListTokens(ctx)
	return dbrow.Map(rows, tokenOf), pg.Translate(err)
}

// RevokeToken removes a token, or fails with ErrNotFound.
func (s *TokenStore) RevokeToken(ctx context.Context, name string) error {
	n, err := s.db.Q.RevokeToken(ctx, name)
	if err == nil && n == 0 {
		return turnkeeper.ErrNotFound
	}
	return pg.Translate(err)
}

// FindToken is the token with this secret, or ErrNotFound when there is none or
// it has expired. That it was used is noted.
func (s *TokenStore) FindToken(ctx context.Context, secret string) (Token, error) {
	row, err := s.db.Q.TokenByHash(ctx, hashToken(secret))
	if err != nil {
		return Token{}, pg.Translate(err)
	}
	return s.used(ctx, tokenOf(row))
}

// used notes that a token was used, once a minute.
func (s *TokenStore) used(ctx context.Context, t Token) (_ Token, err error) {
	if time.Since(t.LastUsedAt) > time.Minute {
		err = s.db.Q.NoteTokenUse(ctx, t.ID)
	}
	return t, pg.Translate(err)
}

// AnyToken says whether there is a token that has not expired.
func (s *TokenStore) AnyToken(ctx context.Context) (bool, error) {
	there, err := s.db.Q.AnyToken(ctx)
	return there, pg.Translate(err)
}

// hashToken needs no salt: a secret has 260 random bits.
func hashToken(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func tokenOf(r dbsqlc.TurnkeeperApiToken) Token {
	return Token{
		ID: r.ID, Name: r.Name, Scopes: r.Scopes, Agents: r.Agents, CreatedAt: r.CreatedAt, ExpiresAt: dbrow.OrZero(r.ExpiresAt),
		LastUsedAt: dbrow.OrZero(r.LastUsedAt),
	}
}
