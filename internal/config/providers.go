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

// demo is the built-in provider, which cannot be configured.
const demo = "demo"

// A Provider is an OpenAI-compatible endpoint.
type Provider struct {
	Name    string
	BaseURL string            `yaml:"base_url" as:"base url"`                                       // without a slash at the end
	APIKey  Secret            `yaml:"api_key,api_key_env,api_key_file" as:"credential" type:"text"` // not set: none is sent
	Headers map[string]Secret `yaml:"headers" names:"header" as:"header"`                           // sent with each request; nil: none
	Query   map[string]Secret `yaml:"query" names:"parameter" as:"header"`                          // added to the address of each request; nil: none
	Timeout time.Duration     `yaml:"timeout" in:"0 to 24h"`                                        // of one model call that does not stream; 0: model_timeout
	Profile Profile
}

// A Profile is what the endpoint wants that others do not. Unset fields are
// those of the named profile.
type Profile struct {
	Name           string                     `yaml:"profile" check:"profile"` // never empty
	MaxTokensField string                     `yaml:"max_tokens_field" of:"max_tokens, max_completion_tokens"`
	Stream         *bool                      `yaml:"stream"`
	StreamUsage    *bool                      `yaml:"stream_usage"`
	ToolChoice     *bool                      `yaml:"tool_choice"`
	User           *bool                      `yaml:"user"`
	EmptyContent   string                     `yaml:"empty_content" of:"null, string, omit"`
	ToolCallIDs    string                     `yaml:"tool_call_ids" of:"any, nine, word"`
	Reasoning      string                     `yaml:"reasoning" of:"same, never, require"`
	Extra          map[string]json.RawMessage `yaml:"extra"` // more fields of the request's body
}

// profileNames are the profiles that a provider can have. A provider that has
// the name of one has it unless it says otherwise; others have "generic".
var profileNames = []string{"anthropic", "azure", "deepseek", "gemini", "generic", "llamacpp", "mistral", "ollama", "openai", "openrouter", "vllm"}

// A shortcut makes a provider out of variables.
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

// readShortcuts fills in what the config file leaves open from the variables
// that other programs use as well. A key goes only to the address that the
// same variables mean, never to one that the config file gives.
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
		r.Add(v.Line, "%sbase_url is missing: give the endpoint's address, such as http://localhost:11434/v1", where)
	}
	if p.Profile.Name == "" {
		p.Profile.Name = "generic"
		if slices.Contains(profileNames, name) {
			p.Profile.Name = name
		}
	}
	if p.azureNeedsVersion() {
		r.Add(v.Line, "%squery must give api-version, such as 2024-10-21: Azure's API by deployments refuses every request without it; a base_url that ends in /openai/v1 needs none", where)
	}
	return p
}

// azureNeedsVersion says whether Azure would refuse every request, for it asks for a version of its
// API by deployments.
func (p Provider) azureNeedsVersion() bool {
	_, given := p.Query["api-version"]
	return p.Profile.Name == "azure" && !given && p.BaseURL != "" && !strings.HasSuffix(p.BaseURL, "/v1")
}

// ProviderNames lists the configured providers, sorted, without demo.
func (c *Config) ProviderNames() []string { return slices.Sorted(maps.Keys(c.Providers)) }
