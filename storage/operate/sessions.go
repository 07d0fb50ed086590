package operate

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/pg"
)

// sessionPrefix identifies the purpose of a leaked secret.
const sessionPrefix = "ts_"

// SignIn begins a session of the token with this secret, or fails with ErrNotFound if
// there is none. It returns the session's own secret, of which only a hash is stored. The
// session ends after lifetime, or earlier when its token expires or is revoked.
func (s *TokenStore) SignIn(ctx context.Context, secret string, lifetime time.Duration) (Token, string, error) {
	token, err := s.FindToken(ctx, secret)
	if err != nil {
		return Token{}, "", err
	}
	session := sessionPrefix + strings.ToLower(rand.Text()+rand.Text())
	n, err := s.db.Q.CreateSession(ctx, hashToken(session), lifetime, token.ID)
	if err == nil && n == 0 {
		return Token{}, "", turnkeeper.ErrNotFound // the token was just revoked
	}
	return token, session, pg.Translate(err)
}

// FindSession returns the token of the session with this secret. It fails with
// ErrNotFound if the session or the token has ended.
func (s *TokenStore) FindSession(ctx context.Context, session string) (Token, error) {
	row, err := s.db.Q.TokenOfSession(ctx, hashToken(session))
	if err != nil {
		return Token{}, pg.Translate(err)
	}
	return s.used(ctx, tokenOf(row))
}

// SignOut ends a session. An unknown session is not an error.
func (s *TokenStore) SignOut(ctx context.Context, session string) error {
	return pg.Translate(s.db.Q.EndSession(ctx, hashToken(session)))
}
