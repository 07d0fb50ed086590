package setup

import (
	"encoding/json"
	"strings"
	"testing"

	"turnkeeper/inference/openai"
	"turnkeeper/internal/config"
)

// TestTheAPIOfAProvider checks which API a provider speaks, and what does not fit together.
func TestTheAPIOfAProvider(t *testing.T) {
	const anthropic = "https://api.anthropic.com/v1"
	never := config.Profile{Name: "anthropic", Reasoning: "never"}
	for name, tc := range map[string]struct {
		provider config.Provider
		want     openai.API // empty: chat
		says     string
	}{
		"Anthropic": {config.Provider{BaseURL: anthropic}, openai.APIMessages, ""},
		"Anthropic in capitals": {config.Provider{BaseURL: "https://API.anthropic.com:443/v1"},
			openai.APIMessages, ""},
		"Anthropic with its profile": {config.Provider{BaseURL: anthropic, Profile: never},
			openai.APIMessages, ""},
		"Anthropic's chat": {config.Provider{BaseURL: anthropic, API: "chat",
			Profile: never}, "", ""},
		"a host of that name": {config.Provider{BaseURL: "https://api.anthropic.com.example.com/v1"}, "", ""},
		"OpenAI":              {config.Provider{BaseURL: "https://api.openai.com/v1"}, openai.APIResponses, ""},
		"OpenAI with its profile": {config.Provider{BaseURL: "https://api.openai.com/v1",
			Profile: config.Profile{Name: "openai"}}, openai.APIResponses, ""},
		"a gateway": {config.Provider{BaseURL: "http://h/v1"}, "", ""},
		"a gateway for messages": {config.Provider{BaseURL: "http://h/v1",
			API: "messages"}, openai.APIMessages, ""},
		"responses": {config.Provider{BaseURL: "http://h/v1", API: "responses"}, openai.APIResponses, ""},
		"Gemini's profile": {config.Provider{BaseURL: "http://h/v1", API: "messages",
			Profile: config.Profile{Name: "gemini"}}, "",
			"providers.p: the profile gemini has no API messages: set another api or profile"},
		"a field of chat completions": {config.Provider{BaseURL: anthropic,
			Profile: config.Profile{MaxTokensField: "max_completion_tokens"}}, "",
			"providers.p: max_tokens_field has no meaning for the API messages: remove it, or set api: chat"},
		"reasoning for everyone": {config.Provider{BaseURL: anthropic,
			Profile: config.Profile{Reasoning: "require"}}, "",
			"providers.p: reasoning: require has no meaning for the API messages: remove it, or set api: chat"},
		"thinking without a budget": {config.Provider{BaseURL: anthropic, Profile: config.Profile{
			Extra: map[string]json.RawMessage{"thinking": json.RawMessage(`{"type":"enabled"}`)}}}, "",
			"providers.p: extra.thinking.budget_tokens is 0: the API demands at least 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.provider.Name = "p"
			if tc.provider.Profile.Name == "" {
				tc.provider.Profile.Name = "generic"
			}
			profile, err := profileOf(tc.provider)
			if tc.says != "" {
				if err == nil || err.Error() != tc.says {
					t.Errorf("got %v, want %s", err, tc.says)
				}
				_, err = NewModels(&config.Config{Providers: map[string]config.Provider{"p": tc.provider}}, nil, nil,
					nil, nil)
				if err == nil || err.Error() != tc.says {
					t.Errorf("a worker starts with %v", err)
				}
				return
			}
			if err != nil || profile.API != tc.want {
				t.Errorf("got %q, %v, want %q", profile.API, err, tc.want)
			}
			if reset := tc.provider.Profile.Reasoning == "" && profile.Reasoning != ""; reset {
				t.Errorf("reasoning is %q", profile.Reasoning)
			}
		})
	}
	own, err := profileOf(config.Provider{Name: "p", BaseURL: anthropic, Profile: config.Profile{Name: "anthropic"}})
	if err != nil || own.Reasoning != "" || !own.Separates {
		t.Errorf("Anthropic's profile is %+v, %v", own, err)
	}
}

// TestAnswersThatAnAPICannotCarry checks settings of agents against the provider of their model.
func TestAnswersThatAnAPICannotCarry(t *testing.T) {
	cfg := &config.Config{Providers: map[string]config.Provider{"p": {Name: "p", BaseURL: "http://h/v1",
		API: "messages",
		Profile: config.Profile{Name: "generic", Extra: map[string]json.RawMessage{
			"thinking": json.RawMessage(`{"type":"enabled","budget_tokens":4000}`)}}}}}
	for _, tc := range []struct {
		model       string
		tokens      int
		temperature *float64
		says        string
	}{
		{"p/m", 0, nil, ""}, {"other/m", 1, new(0.5), ""},
		{"p/m", 4000, nil, `the model "p/m" cannot be asked: an answer of at most 4000 tokens leaves no room for thinking`},
		{"p/m", 0, new(0.5), `the model "p/m" cannot be asked: a temperature of 0.5 and thinking`},
	} {
		err := checkAnswers(tc.model, cfg, tc.tokens, tc.temperature)
		if (err == nil) != (tc.says == "") || err != nil && !strings.HasPrefix(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
