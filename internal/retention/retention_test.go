package retention_test

import (
	"testing"
	"time"

	"turnkeeper/internal/retention"
)

// TestPolicies reads policies with and without settings, in databases with and without a time of their own.
func TestPolicies(t *testing.T) {
	const day = 24 * time.Hour
	unset := retention.Policy{Outputs: retention.ByDatabase, Events: retention.ByDatabase}
	for _, c := range []struct {
		set       retention.Policy
		kept      time.Duration
		words     string
		undecided bool
	}{
		{unset, 30 * day, "messages for ever, outputs for 30 days, events for 30 days, leases for ever", false},
		{unset, 0, "messages for ever, outputs for ever, events for ever, leases for ever", true},
		{retention.Policy{}, 30 * day, "messages for ever, outputs for ever, events for ever, leases for ever", false},
		{retention.Policy{Messages: 90 * day, Outputs: retention.ByDatabase, Events: 36 * time.Hour,
			Leases: 90 * time.Minute}, 30 * day,
			"messages for 90 days, outputs for 30 days, events for 36h, leases for 1h30m", false},
		{retention.Policy{Messages: day, Outputs: retention.ByDatabase, Events: retention.ByDatabase}, 0,
			"messages for 24h, outputs for ever, events for ever, leases for ever", false},
		{retention.Policy{Outputs: day, Events: retention.ByDatabase}, 0,
			"messages for ever, outputs for 24h, events for ever, leases for ever", false},
		{retention.Policy{Outputs: retention.ByDatabase, Events: day}, 0,
			"messages for ever, outputs for ever, events for 24h, leases for ever", false},
	} {
		if got := c.set.With(c.kept).String(); got != c.words {
			t.Errorf("%+v: %s, want %s", c.set, got, c.words)
		}
		if got := c.set.Undecided(c.kept); got != c.undecided {
			t.Errorf("%+v is undecided: %v", c.set, got)
		}
	}
}

// TestEachClassHasItsTime checks that no class is kept for the time of another.
func TestEachClassHasItsTime(t *testing.T) {
	p := retention.Policy{Messages: 1 * time.Hour, Leases: 2 * time.Hour, Outputs: retention.ByDatabase,
		Events: 4 * time.Hour}
	for class, want := range map[retention.Class]time.Duration{
		retention.Messages: 1 * time.Hour, retention.Leases: 2 * time.Hour, retention.Outputs: retention.ByDatabase,
		retention.Events: 4 * time.Hour, "another": 0,
	} {
		if got := p.Of(class); got != want {
			t.Errorf("%s: %s, want %s", class, got, want)
		}
	}
	if got, want := p.String(),
		"messages for 1h, outputs as the database says, events for 4h, leases for 2h"; got != want {
		t.Errorf("before With: %s, want %s", got, want)
	}
	if p.With(time.Minute); p.Outputs != retention.ByDatabase {
		t.Error("With changes the policy itself")
	}
}
