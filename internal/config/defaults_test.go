package config_test

import (
	"testing"

	"turnkeeper/internal/config"
)

// TestDefaultsOfTheContract checks the numbers that the contract gives: defaults, and what a setting accepts.
func TestDefaultsOfTheContract(t *testing.T) {
	want := map[string][2]string{ // default and bounds; "": the contract does not say
		"max_rounds": {"3", "1 to 20"}, "round_ceiling": {"20", "1 to 20"}, "max_duration": {"90s"},
		"max_tool_calls": {"12"}, "max_paging_calls": {"64"}, "tool_timeout": {"60s"}, "model_idle_timeout": {"20s"},
		"lease_ttl": {"240s"}, "lease_margin": {"30s"}, "takeover_after": {"15s"}, "shutdown_grace": {"25s"},
		"max_message_bytes": {"65536"}, "max_tool_result_chars": {"6000"}, "async": {"true"},
		"async_token_threshold": {"10000"}, "async_timeout": {"5s"}, "freshness_window": {"600s"},
		"cooldown_failures": {"3"}, "cooldown_window": {"1800s"}, "cooldown": {"1800s"}, "max_attempts": {"3"},
		"give_up_after": {"24h"}, "max_dispatches": {"3"}, "continuation": {"true"}, "reply_sink": {"allow"},
		"listen": {"127.0.0.1:8722"}, "max_sender_priority": {"0"},
	}
	for _, s := range config.Settings() {
		w, found := want[s.Name]
		if !found {
			continue
		}
		delete(want, s.Name)
		if s.Default != w[0] || w[1] != "" && s.Bounds != w[1] {
			t.Errorf("%s is %s by default and accepts %s, want %q", s.Name, s.Default, s.Bounds, w)
		}
	}
	for name := range want {
		t.Errorf("there is no setting %s", name)
	}
}
