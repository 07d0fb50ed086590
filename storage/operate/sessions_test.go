package operate_test

import (
	"errors"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

func TestSessions(t *testing.T) {
	h := newEnv(t)
	ctx := t.Context()
	made, secret, err := h.CreateToken(ctx, operate.Token{Name: "board", Scopes: []string{"read"},
		Agents: []string{"helper"}})
	if err != nil {
		t.Fatal(err)
	}
	signIn := func(lifetime time.Duration) string {
		t.Helper()
		token, session, err := h.SignIn(ctx, secret, lifetime)
		if err != nil || token.ID != made.ID {
			t.Fatalf("signed in as %+v: %v", token, err)
		}
		return session
	}
	want := func(session string, there bool) {
		t.Helper()
		token, err := h.FindSession(ctx, session)
		switch {
		case there && (err != nil || token.Name != "board" || len(token.Agents) != 1):
			t.Errorf("the session is of %+v: %v", token, err)
		case !there && !errors.Is(err, turnkeeper.ErrNotFound):
			t.Errorf("a session that has ended is of %+v: %v", token, err)
		}
	}
	first, second, past := signIn(time.Hour), signIn(time.Hour), signIn(0)
	want(first, true)
	want(second, true)
	want(past, false)
	want(secret, false)
	if err := h.SignOut(ctx, first); err != nil {
		t.Fatal(err)
	}
	want(first, false)
	want(second, true)
	if err := h.SignOut(ctx, first); err != nil {
		t.Errorf("a second sign-out: %v", err)
	}
	if _, _, err := h.SignIn(ctx, second, time.Hour); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("a session signed in: %v", err)
	}
	if err := h.RevokeToken(ctx, "board"); err != nil {
		t.Fatal(err)
	}
	want(second, false)
}

// A token is valid until it expires, and a session until it or its token expires.
func TestWhatHasExpired(t *testing.T) {
	h := newEnv(t)
	ctx := t.Context()
	there := func(what string, err error, want bool) {
		t.Helper()
		if want && err != nil || !want && !errors.Is(err, turnkeeper.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := h.Pool().Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	if any, err := h.AnyToken(ctx); err != nil || any {
		t.Errorf("there is a token before the first: %v, %v", any, err)
	}
	_, secret, err := h.CreateToken(ctx, operate.Token{Name: "board", Scopes: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	_, session, err := h.SignIn(ctx, secret, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		token, session      string // time until they expire
		hasToken, inSession bool
	}{
		{"", "1 hour", true, true},
		{"", "-1 microsecond", true, false},
		{"1 hour", "1 hour", true, true},
		{"1 hour", "-1 microsecond", true, false},
		{"-1 microsecond", "1 hour", false, false},
		{"-1 microsecond", "-1 hour", false, false},
		{"-1 hour", "-1 hour", false, false},
		{"1 hour", "1 hour", true, true}, // expiry has not deleted them
	} {
		name := "a token that expires in " + c.token + ", a session in " + c.session
		exec("update turnkeeper.api_tokens set expires_at = clock_timestamp() + nullif($1, '')::text::interval",
			c.token)
		exec("update turnkeeper.page_sessions set expires_at = clock_timestamp() + $1::text::interval", c.session)
		_, err := h.FindToken(ctx, secret)
		there(name+": the token", err, c.hasToken)
		_, err = h.FindSession(ctx, session)
		there(name+": the session", err, c.inSession)
		if any, err := h.AnyToken(ctx); err != nil || any != c.hasToken {
			t.Errorf("%s: there is a token: %v, %v", name, any, err)
		}
		if !c.hasToken {
			_, _, err = h.SignIn(ctx, secret, time.Hour)
			there(name+": signing in", err, false)
		}
	}
	// A session does not outlive its token. A sign-in deletes exactly the sessions that have ended.
	exec("update turnkeeper.api_tokens set expires_at = clock_timestamp() + interval '2 hours'")
	_, short, err := h.SignIn(ctx, secret, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var outlives bool
	if err := h.Pool().QueryRow(ctx,
		"select bool_or(s.expires_at > t.expires_at) from turnkeeper.page_sessions s join turnkeeper.api_tokens t on t.id = s.token_id").Scan(&outlives); err != nil || outlives {
		t.Errorf("a session outlives its token: %v, %v", outlives, err)
	}
	exec(
		"update turnkeeper.page_sessions set expires_at = clock_timestamp() - interval '1 microsecond' where sha256 = (select sha256 from turnkeeper.page_sessions order by expires_at desc limit 1)")
	if _, _, err := h.SignIn(ctx, secret, time.Minute); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := h.Pool().QueryRow(ctx, "select count(*) from turnkeeper.page_sessions").Scan(&left); err != nil ||
		left != 2 {
		t.Errorf("%d sessions are left, want 2: %v", left, err)
	}
	// An expired token can be revoked. It is deleted with its sessions.
	exec("update turnkeeper.api_tokens set expires_at = clock_timestamp() - interval '1 hour'")
	if err := h.RevokeToken(ctx, "board"); err != nil {
		t.Fatal(err)
	}
	if err := h.RevokeToken(ctx, "board"); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	for _, s := range []string{session, short} {
		_, err := h.FindSession(ctx, s)
		there("a session of a revoked token", err, false)
	}
	if err := h.Pool().QueryRow(ctx, "select count(*) from turnkeeper.page_sessions").Scan(&left); err != nil ||
		left != 0 {
		t.Errorf("%d sessions of a revoked token are left: %v", left, err)
	}
}
