package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"turnkeeper/internal/config/strictyaml"
)

// demo is the built-in provider. It cannot be configured.
const demo = "demo"

// A Provider is an endpoint that models are asked at.
type Provider struct {
	Name string
	// without a final slash
	BaseURL string `yaml:"base_url" as:"base url"`
	APIKey  Secret `yaml:"api_key,api_key_env,api_key_file" as:"credential" type:"text"` // not set: not sent
	// sent with each request; nil: none
	Headers map[string]Secret `yaml:"headers" names:"header" as:"header"`
	// query parameters of each request; nil: none
	Query map[string]Secret `yaml:"query" names:"parameter" as:"header"`
	// of one model call without streaming; 0: model_timeout
	Timeout time.Duration `yaml:"timeout" in:"0 to 24h"`
	API     string        `yaml:"api" of:"chat, responses, messages"` // empty: by the host of BaseURL
	Profile Profile
}

// A Profile describes how an endpoint differs from others. Unset fields are those of the named profile.
type Profile struct {
	Name           string                     `yaml:"profile" check:"profile"` // never empty
	MaxTokensField string                     `yaml:"max_tokens_field" of:"max_tokens, max_completion_tokens"`
	Stream         *bool                      `yaml:"stream"`
	StreamUsage    *bool                      `yaml:"stream_usage"`
	ToolChoice     *bool                      `yaml:"tool_choice"`
	User           *bool                      `yaml:"user"`
	Separates      *bool                      `yaml:"separates_reasoning"`
	EmptyContent   string                     `yaml:"empty_content" of:"null, string, omit"`
	ToolCallIDs    string                     `yaml:"tool_call_ids" of:"any, nine, word"`
	Reasoning      string                     `yaml:"reasoning" of:"same, never, require"`
	Extra          map[string]json.RawMessage `yaml:"extra"` // additional fields of the request's body
}

// profileNames are the names of all profiles. A provider's default profile is the one of its own name,
// else "generic".
var profileNames = []string{"anthropic", "azure", "deepseek", "gemini", "generic", "llamacpp", "mistral", "ollama",
	"openai", "openrouter", "vllm"}

// A shortcut defines a provider by environment variables.
type shortcut struct {
	provider, baseURL string
	keyEnv, urlEnv    string // urlEnv may be empty
}

var shortcuts = []shortcut{
	{provider: "openai", baseURL: "https://api.openai.com/v1", keyEnv: "OPENAI_API_KEY", urlEnv: "OPENAI_BASE_URL"},
	{provider: "openrouter", baseURL: "https://openrouter.ai/api/v1", keyEnv: "OPENROUTER_API_KEY"},
}

func checkModel(name string) error {
	if !modelForm.MatchString(name) {
		return errors.New("it must be PROVIDER/MODEL, such as openai/gpt-5-mini")
	}
	return nil
}

func checkModelOrNone(name string) error {
	if name == "" {
		return nil
	}
	return checkModel(name)
}

// readShortcuts defines providers, or completes those of the config file, with environment variables
// that other programs use too. A key is sent only to the address that the same variables define, never
// to one set in the config file.
func (l *loader) readShortcuts() {
	for _, s := range shortcuts {
		key, hasKey := l.env(s.keyEnv)
		base, hasURL := l.env(s.urlEnv)
		p, configured := l.config.Providers[s.provider]
		if !configured && !hasKey && !hasURL {
			continue
		}
		p.Name = s.provider
		p.Profile.Name = cmp.Or(p.Profile.Name, s.provider)
		if p.BaseURL == "" {
			var err error
			if p.BaseURL, err = baseURL(cmp.Or(base, s.baseURL)); err != nil {
				l.add("providers.%s.base_url (%s): %w", s.provider, s.urlEnv, err)
			}
			if !p.APIKey.IsSet() && hasKey {
				p.APIKey = l.usable(fmt.Sprintf("providers.%s.api_key (%s)", s.provider, s.keyEnv), key)
			}
		}
		l.config.Providers[s.provider] = p
	}
}

func (l *loader) usable(name, key string) Secret {
	secret, err := newCredential(key)
	if err != nil {
		l.lacks(name, ": "+err.Error(), func(sentence string) { l.add("%s", sentence) })
	}
	l.config.fileSecrets = append(l.config.fileSecrets, secret.Reveal())
	return secret
}

// provider reads one provider of the config file.
func (r *fileReader) provider(where, name string, v *strictyaml.Node) Provider {
	p := Provider{Name: name}
	r.Decode(where, v, &p)
	isShortcut := slices.ContainsFunc(shortcuts, func(s shortcut) bool { return s.provider == name })
	if v.Get("base_url") == nil && !isShortcut && v.Kind == strictyaml.Map {
		r.Add(v.Line, "%sbase_url is missing: set the endpoint's address, such as http://localhost:11434/v1", where)
	}
	if p.Profile.Name == "" {
		p.Profile.Name = "generic"
		if slices.Contains(profileNames, name) {
			p.Profile.Name = name
		}
	}
	if p.azureNeedsVersion() {
		r.Add(v.Line,
			"%squery must have api-version, such as 2024-10-21: Azure's deployments API refuses every request without it; a base_url that ends in /openai/v1 does not need it", where)
	}
	return p
}

// azureNeedsVersion reports whether the query parameter api-version, which Azure's deployments API
// requires, is missing.
func (p Provider) azureNeedsVersion() bool {
	_, given := p.Query["api-version"]
	return p.Profile.Name == "azure" && !given && p.BaseURL != "" && !strings.HasSuffix(p.BaseURL, "/v1")
}

// ProviderNames returns the names of the configured providers, sorted, without demo.
func (c *Config) ProviderNames() []string { return slices.Sorted(maps.Keys(c.Providers)) }
