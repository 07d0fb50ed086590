package storage_test

import (
	"errors"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage"
)

func TestSessions(t *testing.T) {
	h := newHouse(t)
	ctx := t.Context()
	made, secret, err := h.CreateToken(ctx, storage.Token{Name: "board", Scopes: []string{"read"}, Agents: []string{"helper"}})
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
