package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/config"
)

func TestMisspelt(t *testing.T) {
	got := config.Misspelt([]string{
		"PATH", "TURNKEEPER_MAX_ROUND", "TURNKEEPER_MAX_ROUNDS", "TURNKEEPER_DATA_DIR", "TURNKEEPER_CONFIG",
		"TURNKEEPER_DATABASE_URL", "TURNKEEPER_max_rounds", "TURNKEEPER_SOMETHING_ELSE_ALTOGETHER", "DATABASE_URL",
	})
	want := []string{
		"unknown setting TURNKEEPER_MAX_ROUND; did you mean TURNKEEPER_MAX_ROUNDS?",
		"unknown setting TURNKEEPER_max_rounds; did you mean TURNKEEPER_MAX_ROUNDS?",
		"unknown setting TURNKEEPER_SOMETHING_ELSE_ALTOGETHER",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
