package modeltable_test

import (
	"testing"
	"time"

	"turnkeeper/inference/modeltable"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	const (
		openai  = "https://api.openai.com/v1"
		claude  = "https://api.anthropic.com/v1"
		google  = "https://generativelanguage.googleapis.com/v1beta/openai"
		router  = "https://openrouter.ai/api/v1"
		public  = "https://models.example.com/v1"
		private = "http://10.1.2.3:4000/v1"
	)
	for _, tc := range []struct {
		profile, base, model string
		want                 int // 0: not known
	}{
		{"openai", openai, "gpt-5-mini", 272_000},
		{"openai", openai, "gpt-5-mini-2025-08-07", 272_000},
		{"openai", openai, "gpt-4.1-nano", 1_047_576},
		{"generic", openai, "gpt-4o-2024-11-20", 128_000},
		{"openai", openai, "gpt-5-micro", 0},
		{"openai", openai, "gpt-5-mini-turbo", 0},
		{"openai", openai, "ft:gpt-4o:acme::x", 0},
		{"azure", "https://x.openai.azure.com/openai", "gpt-4o", 128_000},
		{"azure", "https://x.openai.azure.com/openai", "my-deployment", 0},
		{"anthropic", claude, "claude-sonnet-4-5", 200_000},
		{"anthropic", claude, "claude-sonnet-4-5-latest", 200_000},
		{"anthropic", claude, "claude-sonnet-4-5-20991231", 200_000},
		{"anthropic", claude, "claude-sonnet-4", 0},
		{"gemini", google, "gemini-2.5-flash", 1_048_576},
		{"gemini", google, "models/gemini-2.5-flash", 1_048_576},
		{"gemini", google, "gemini-2.5", 0},
		{"openrouter", router, "anthropic/claude-sonnet-4.5", 1_000_000},
		{"openrouter", router, "anthropic/claude-sonnet-4.5:nitro", 1_000_000},
		{"openrouter", router, "liquid/lfm-2.5-2.6b", 128_000},
		{"openrouter", router, "liquid/lfm-2.5-2.6b:free", 65_536},
		{"openrouter", router, "openai/gpt-5:free", 0},
		{"openrouter", router, "openai/gpt-5-mini", 272_000},
		{"generic", "https://api.groq.com/openai/v1", "qwen/qwen3-32b", 131_072},
		{"generic", public, "gpt-4o", 128_000},
		{"generic", public, "anthropic/claude-opus-4-5", 200_000},
		{"generic", public, "google/gemini-2.5-pro", 1_048_576},
		{"generic", public, "qwen/qwen3-32b", 0},
		{"generic", private, "gpt-4o", 0},
		{"openai", "http://localhost:8080/v1", "gpt-4o", 0},
		{"openai", "http://[::1]:8080/v1", "gpt-4o", 0},
		{"openai", "http://litellm:4000/v1", "gpt-4o", 0},
		{"openai", "http://gpu.lan/v1", "gpt-4o", 0},
		{"ollama", public, "gpt-4o", 0},
		{"vllm", openai, "gpt-4o", 0},
		{"generic", "::", "gpt-4o", 0},
	} {
		got, ok := modeltable.Lookup(tc.profile, tc.base, tc.model)
		if got != tc.want || ok != (tc.want > 0) {
			t.Errorf("%s at %s (%s): %d, %t, want %d", tc.model, tc.base, tc.profile, got, ok, tc.want)
		}
	}
}

func TestDate(t *testing.T) {
	t.Parallel()
	if _, err := time.Parse(time.DateOnly, modeltable.Date()); err != nil {
		t.Error(err)
	}
}
