package operate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

func TestTokensAreOneAnothers(t *testing.T) {
	h, ctx := newEnv(t), t.Context()
	secrets := map[string]string{}
	for _, name := range []string{"first", "second"} {
		_, secret, err := h.CreateToken(ctx, operate.Token{Name: name, Scopes: []string{"read"}})
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = secret
	}
	if _, _, err := h.CreateToken(ctx, operate.Token{Name: "first", Scopes: []string{"send"}}); !errors.Is(err,
		operate.ErrTokenExists) {
		t.Errorf("a second token of the name: %v", err)
	}

	used := func(name string) *time.Time {
		return storagetest.One[*time.Time](h, "select last_used_at from turnkeeper.api_tokens where name = $1", name)
	}
	find := func(name string) {
		t.Helper()
		if token, err := h.FindToken(ctx, secrets[name]); err != nil || token.Name != name {
			t.Errorf("%s: found %+v, %v", name, token, err)
		}
	}
	find("first")
	if used("first") == nil || used("second") != nil {
		t.Errorf("after the use of the first: first %v, second %v", used("first"), used("second"))
	}
	// The last use is recorded at most once a minute.
	for _, c := range []struct {
		ago   string
		noted bool
	}{{"50 s", false}, {"70 s", true}} {
		h.Exec("update turnkeeper.api_tokens set last_used_at = clock_timestamp() - $1::interval", c.ago)
		before := used("first")
		find("first")
		if after := used("first"); after.Equal(*before) == c.noted {
			t.Errorf("used %s ago: %v became %v", c.ago, before, after)
		}
	}
	if err := h.RevokeToken(ctx, "third"); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("revoking a token that does not exist: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := h.RevokeToken(ended, "first"); err == nil || errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("revoking without the database: %v", err)
	}
	if err := h.RevokeToken(ctx, "first"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.FindToken(ctx, secrets["first"]); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("the revoked token: %v", err)
	}
	find("second")
}
