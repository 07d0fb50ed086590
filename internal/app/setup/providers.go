package setup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/demo"
	"turnkeeper/inference/modeltable"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/config"
	"turnkeeper/internal/redact"
)

// Models has the configured providers and the context windows of their models.
type Models struct {
	Providers map[string]inference.Provider
	Windows   *windows
}

// Readers holds what parses the answers of each API. It is a parameter because the readers link the official clients,
// and turnctl, which calls no model, must not.
type Readers map[openai.API]openai.ReadAnswer

// NewModels creates the configured providers and the demo provider.
func NewModels(cfg *config.Config, script func(string) (*demo.Script, bool), readers Readers,
	masker *redact.Masker, log *zap.Logger) (*Models, error) {
	m := &Models{Providers: map[string]inference.Provider{demoProvider: demo.Provider{Script: script}}}
	clients := map[string]*openai.Client{}
	for name, p := range cfg.Providers {
		client, err := newClient(p, cfg.Bounds.ModelIdle, readers, log)
		if err != nil {
			return nil, err
		}
		clients[name] = client
		limit := time.Duration(0)
		if !client.Streams() { // a streaming call has only an idle timeout
			limit = cmp.Or(p.Timeout, cfg.Bounds.ModelTimeout)
		}
		m.Providers[name] = maskedProvider{limited(client, name, limit), masker}
	}
	m.Windows = newWindows(cfg, clients)
	return m, nil
}

const demoProvider = demo.Name

// Find returns the provider of "provider/model".
func (m *Models) Find(name string) (inference.Provider, agentturn.ModelInfo, error) {
	provider, model, ok := strings.Cut(name, "/")
	if !ok || model == "" {
		return nil, agentturn.ModelInfo{}, fmt.Errorf("the model %q must be written as provider/model", name)
	}
	client, ok := m.Providers[provider]
	if !ok {
		return nil, agentturn.ModelInfo{}, notConfigured(name, provider, slices.Sorted(maps.Keys(m.Providers)))
	}
	info := agentturn.ModelInfo{Provider: provider, Model: model}
	if provider != demoProvider {
		known := m.Windows.of(name)
		m.Windows.want(known)
		// An agent's own context_window overrides an assumed one.
		if known.Source != WindowAssumed || known.Tokens != assumedWindow {
			info.ContextWindow = known.Tokens
		}
	} else {
		info.ContextWindow = m.Windows.cfg.Models[name].ContextWindow
	}
	return client, info, nil
}

// checkModel returns an error if the provider of the model is not configured, or the demo script in dir
// does not exist.
func checkModel(model string, cfg *config.Config, scripts demo.Scripts, dir string) error {
	provider, own, _ := strings.Cut(model, "/")
	configured := append([]string{demoProvider}, cfg.ProviderNames()...)
	switch {
	case provider == demoProvider:
		return scripts.Check(own, dir)
	case slices.Contains(configured, provider):
		return nil
	}
	return notConfigured(model, provider, configured)
}

// checkAnswers returns an error if the provider of a model cannot be used as configured, or cannot be sent an agent's
// settings for answers. maxTokens is 0 and temperature nil if they are not set.
func checkAnswers(model string, cfg *config.Config, maxTokens int, temperature *float64) error {
	name, _, _ := strings.Cut(model, "/")
	p, ok := cfg.Providers[name]
	if !ok {
		return nil
	}
	profile, err := profileOf(p)
	if err == nil {
		err = profile.CheckAnswer(maxTokens, temperature)
	}
	if err != nil {
		return fmt.Errorf("the model %q cannot be asked: %w", model, err)
	}
	return nil
}

func notConfigured(model, provider string, configured []string) error {
	return fmt.Errorf("the model %q needs the provider %q, which is not configured; configured are: %s (%s)",
		model, provider, strings.Join(configured, ", "), providerHint(provider))
}

// providerHint returns how to configure a provider. Environment variables must be set in the terminal of
// each command.
func providerHint(provider string) string {
	switch provider {
	case "openai":
		return "set OPENAI_API_KEY, also in this terminal, and start the worker again"
	case "openrouter":
		return "set OPENROUTER_API_KEY, also in this terminal, and start the worker again"
	default:
		return "add it under providers: in the config file, and start the worker again"
	}
}

// newClient returns the client of a provider. Without readers it cannot call models.
func newClient(p config.Provider, idle time.Duration, readers Readers, log *zap.Logger) (*openai.Client, error) {
	profile, err := profileOf(p)
	if err != nil {
		return nil, err
	}
	client, err := openai.New(openai.Config{
		Name: p.Name, BaseURL: p.BaseURL, APIKey: openai.Secret(p.APIKey.Reveal()), Headers: revealed(p.Headers),
		Query:   revealed(p.Query),
		Profile: profile, IdleTimeout: idle, Read: readers[cmp.Or(profile.API, openai.APIChat)], Logger: log,
	})
	return client, err
}

// profileOf returns the profile of a provider, or an error, in plain words, if its keys do not fit together.
func profileOf(p config.Provider) (openai.Profile, error) {
	profile, err := openai.ProfileFor(p.Profile.Name, cmp.Or(openai.API(p.API), openai.DefaultAPI(p.BaseURL)))
	if err == nil {
		profile = adjusted(profile, p)
		err = profile.Check()
	}
	if err != nil {
		return profile, fmt.Errorf("providers.%s: %w", p.Name, err)
	}
	return profile, nil
}

func revealed(values map[string]config.Secret) map[string]openai.Secret {
	texts := map[string]openai.Secret{}
	for name, value := range values {
		texts[name] = openai.Secret(value.Reveal())
	}
	return texts
}

// adjusted returns a named profile with the overrides of the settings.
func adjusted(profile openai.Profile, p config.Provider) openai.Profile {
	c := p.Profile
	profile.Separates = profile.Separates && !modeltable.Private(p.BaseURL)
	if c.Separates != nil {
		profile.Separates = *c.Separates
	}
	for _, flag := range []struct {
		not *bool
		set *bool
	}{
		{&profile.NoStream, c.Stream}, {&profile.NoStreamUsage, c.StreamUsage},
		{&profile.NoToolChoice, c.ToolChoice}, {&profile.NoUser, c.User},
	} {
		if flag.set != nil {
			*flag.not = !*flag.set
		}
	}
	if c.MaxTokensField != "" {
		profile.TokenField = c.MaxTokensField
	}
	if c.EmptyContent != "" {
		profile.EmptyContent = openai.EmptyContent(c.EmptyContent)
	}
	if c.ToolCallIDs != "" {
		profile.IDs = openai.IDFormat(c.ToolCallIDs)
	}
	if c.Reasoning != "" {
		profile.Reasoning = openai.ReasoningReplay(c.Reasoning)
	}
	if c.Extra != nil {
		profile.Extra = c.Extra
	}
	return profile
}
