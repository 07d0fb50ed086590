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

// A Token is a token of the HTTP API, without its secret.
type Token struct {
	ID       int64
	Name     string
	Scopes   []string
	Agents   []string      // nil: all
	User     string        // it sends as, and sees, only this user; empty: all
	Lifetime time.Duration // read by CreateToken only; 0: it does not expire

	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	LastUsedAt time.Time // to the minute; zero: never
}

// ErrTokenExists means that there is already a token with this name.
var ErrTokenExists = errors.New("the name is taken")

// tokenPrefix identifies the purpose of a leaked secret.
const tokenPrefix = "tk_"

// CreateToken creates a token and returns its secret, of which only a hash is stored.
// It fails with ErrTokenExists if there is already one with this name.
func (s *TokenStore) CreateToken(ctx context.Context, t Token) (Token, string, error) {
	secret := tokenPrefix + strings.ToLower(rand.Text()+rand.Text())
	row, err := s.db.Q.CreateToken(ctx, dbsqlc.CreateTokenParams{
		Name: t.Name, Sha256: hashToken(secret), Scopes: t.Scopes, Agents: t.Agents, UserName: t.User,
		Lifetime: t.Lifetime,
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

// RevokeToken deletes a token, or fails with ErrNotFound.
func (s *TokenStore) RevokeToken(ctx context.Context, name string) error {
	n, err := s.db.Q.RevokeToken(ctx, name)
	if err == nil && n == 0 {
		return turnkeeper.ErrNotFound
	}
	return pg.Translate(err)
}

// FindToken returns the token with this secret, and records that it was used. It fails
// with ErrNotFound if there is none or it has expired.
func (s *TokenStore) FindToken(ctx context.Context, secret string) (Token, error) {
	row, err := s.db.Q.TokenByHash(ctx, hashToken(secret))
	if err != nil {
		return Token{}, pg.Translate(err)
	}
	return s.used(ctx, tokenOf(row))
}

// used records the use of a token, at most once a minute.
func (s *TokenStore) used(ctx context.Context, t Token) (_ Token, err error) {
	if time.Since(t.LastUsedAt) > time.Minute {
		err = s.db.Q.NoteTokenUse(ctx, t.ID)
	}
	return t, pg.Translate(err)
}

// AnyToken reports whether there is a token that has not expired.
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
		ID: r.ID, Name: r.Name, Scopes: r.Scopes, Agents: r.Agents, User: r.UserName, CreatedAt: r.CreatedAt,
		ExpiresAt:  dbrow.OrZero(r.ExpiresAt),
		LastUsedAt: dbrow.OrZero(r.LastUsedAt),
	}
}
