package operate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/tools/mcp/mcpdef"
)

func TestOneAtATimeRenewsALogin(t *testing.T) {
	h := newEnv(t)
	if _, err := h.MCPLogin(t.Context(), "s"); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("no login: %v", err)
	}
	expires := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	first := mcpdef.Login{Server: "s", Sealed: []byte{1}, Scopes: []string{"a", "b"}, Expires: expires, Renewable: true}
	if err := h.SaveMCPLogin(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	kept, err := h.MCPLogin(t.Context(), "s")
	first.Wanted = []string{}
	changing := cmpopts.IgnoreFields(mcpdef.Login{}, "Revision", "LoggedInAt", "RenewedAt")
	if diff := cmp.Diff(first, kept, changing); diff != "" || err != nil || kept.LoggedInAt.IsZero() {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	claim := func(revision int64, name string, hold time.Duration) bool {
		t.Helper()
		mine, err := h.ClaimMCPLogin(t.Context(), "s", revision, name, hold)
		if err != nil {
			t.Fatal(err)
		}
		return mine
	}
	renew := func(sealed byte, name string) bool {
		t.Helper()
		next := kept
		next.Sealed, next.Scopes, next.Expires, next.Renewable = []byte{sealed}, []string{"c"},
			expires.Add(time.Minute), false
		held, err := h.RenewMCPLogin(t.Context(), next, name)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	// a's claim expires at once, so b takes over, and a's renewal is too late.
	if claim(kept.Revision+1, "a", time.Hour) || !claim(kept.Revision, "a", 0) || !claim(kept.Revision, "b",
		time.Hour) || claim(kept.Revision, "c", time.Hour) {
		t.Error("the claims")
	}
	if renew(2, "a") || !renew(3, "b") || renew(4, "b") {
		t.Error("the renewals")
	}
	renewed, err := h.MCPLogin(t.Context(), "s")
	if err != nil || renewed.Sealed[0] != 3 || renewed.Revision <= kept.Revision || renewed.RenewedAt.IsZero() ||
		renewed.Scopes[0] != "c" ||
		!renewed.Expires.Equal(expires.Add(time.Minute)) || renewed.Renewable {
		t.Errorf("%+v, %v", renewed, err)
	}
	if claim(kept.Revision, "d", time.Hour) {
		t.Error("what was read before the renewal could be claimed")
	}
	if !claim(renewed.Revision, "e", time.Hour) {
		t.Error("what was renewed could not be claimed")
	}
	if err := h.SaveMCPLogin(t.Context(), first); err != nil { // e renews the old login still
		t.Fatal(err)
	}
	anew, err := h.MCPLogin(t.Context(), "s")
	if err != nil || anew.Revision <= renewed.Revision || !anew.RenewedAt.IsZero() {
		t.Errorf("a new login: %+v, %v", anew, err)
	}
	if err := h.ReleaseMCPLogin(t.Context(), "s", "e", "refused"); err != nil {
		t.Fatal(err)
	}
	if renew(5, "e") || !claim(anew.Revision, "f", time.Hour) {
		t.Error("the claim of the old login holds for the new one")
	}
}

func TestALoginThatHasLapsedIsMadeAnew(t *testing.T) {
	h := newEnv(t)
	login := mcpdef.Login{Server: "s", Sealed: []byte{1}, Renewable: true}
	if err := h.SaveMCPLogin(t.Context(), login); err != nil {
		t.Fatal(err)
	}
	if err := h.WantMCPScopes(t.Context(), "s", []string{"more"}); err != nil {
		t.Fatal(err)
	}
	before, err := h.MCPLogin(t.Context(), "s")
	if err != nil || !cmp.Equal(before.Wanted, []string{"more"}) || !before.Expires.IsZero() {
		t.Fatalf("%+v, %v", before, err)
	}
	if mine, err := h.ClaimMCPLogin(t.Context(), "s", before.Revision, "a", time.Hour); !mine || err != nil {
		t.Fatal(mine, err)
	}
	for _, release := range []struct{ claim, why string }{{"other", "not mine"}, {"a", "refused"}} {
		if err := h.ReleaseMCPLogin(t.Context(), "s", release.claim, release.why); err != nil {
			t.Fatal(err)
		}
	}
	lapsed, err := h.MCPLogin(t.Context(), "s")
	if err != nil || lapsed.Lapsed != "refused" {
		t.Fatalf("%+v, %v", lapsed, err)
	}
	if mine, err := h.ClaimMCPLogin(t.Context(), "s", lapsed.Revision, "b", time.Hour); mine || err != nil {
		t.Errorf("what has lapsed could be claimed: %t, %v", mine, err)
	}
	if err := h.SaveMCPLogin(t.Context(), login); err != nil {
		t.Fatal(err)
	}
	anew, err := h.MCPLogin(t.Context(), "s")
	if err != nil || anew.Lapsed != "" || len(anew.Wanted) > 0 || anew.Revision <= lapsed.Revision {
		t.Errorf("%+v, %v", anew, err)
	}
	all, err := h.MCPLogins(t.Context())
	if len(all) != 1 || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
	for _, want := range []bool{true, false} {
		if was, err := h.ForgetMCPLogin(t.Context(), "s"); was != want || err != nil {
			t.Errorf("forgotten: %t, %v", was, err)
		}
	}
}
