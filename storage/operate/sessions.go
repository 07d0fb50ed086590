package operate

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/pg"
)

// sessionPrefix tells what the secret is for to who finds one.
const sessionPrefix = "ts_"

// SignIn begins a session of the token with this secret, or fails with ErrNotFound
// when there is none. The session has a secret of its own, of which only a hash is
// kept. It ends after lifetime, with its token, and when the token expires.
func (s *TokenStore) SignIn(ctx context.Context, secret string, lifetime time.Duration) (Token, string, error) {
	token, err := s.FindToken(ctx, secret)
	if err != nil {
		return Token{}, "", err
	}
	session := sessionPrefix + strings.ToLower(rand.Text()+rand.Text())
	n, err := s.db.Q.CreateSession(ctx, hashToken(session), lifetime, token.ID)
	if err == nil && n == 0 {
		return Token{}, "", turnkeeper.ErrNotFound // it was revoked meanwhile
	}
	return token, session, pg.Translate(err)
}

// FindSession is the token whose session has this secret, or ErrNotFound when the
// session or the token has ended.
func (s *TokenStore) FindSession(ctx context.Context, session string) (Token, error) {
	row, err := s.db.Q.TokenOfSession(ctx, hashToken(session))
	if err != nil {
		return Token{}, pg.Translate(err)
	}
	return s.used(ctx, tokenOf(row))
}

// SignOut ends a session. One that there is not is none.
func (s *TokenStore) SignOut(ctx context.Context, session string) error {
	return pg.Translate(s.db.Q.EndSession(ctx, hashToken(session)))
}
