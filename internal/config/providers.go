package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"regexp"
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
	BaseURL string            // without a slash at the end
	APIKey  Secret            // not set: none is sent
	Headers map[string]Secret // sent with each request; nil: none
	Query   map[string]Secret // added to the address of each request; nil: none
	Timeout time.Duration     // of one model call that does not stream; 0: model_timeout
	Profile Profile

	secretValues []string // of Headers and Query, which the masker must know
}

// A Profile is what the endpoint wants that others do not. Unset fields are
// those of the named profile.
type Profile struct {
	Name           string // never empty
	MaxTokensField string
	Stream         *bool
	StreamUsage    *bool
	ToolChoice     *bool
	User           *bool
	EmptyContent   string
	ToolCallIDs    string
	Reasoning      string
	Extra          map[string]json.RawMessage // more fields of the request's body
}

// ProfileNames are the profiles that a provider can have. A provider that has
// the name of one has it unless it says otherwise; others have "generic".
var ProfileNames = []string{"anthropic", "azure", "deepseek", "gemini", "generic", "llamacpp", "mistral", "ollama", "openai", "openrouter", "vllm"}

// A shortcut makes a provider out of variables.
type shortcut struct {
	provider, baseURL string
	keyEnv, urlEnv    string // urlEnv may be empty
}

var shortcuts = []shortcut{
	{provider: "openai", baseURL: "https://api.openai.com/v1", keyEnv: "OPENAI_API_KEY", urlEnv: "OPENAI_BASE_URL"},
	{provider: "openrouter", baseURL: "https://openrouter.ai/api/v1", keyEnv: "OPENROUTER_API_KEY"},
}

var (
	providerForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	modelForm     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*/[^\s]+$`)
	variableForm  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	parameterForm = regexp.MustCompile(`^[A-Za-z0-9._~$-]{1,64}$`)
	headerForm    = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	secretHeader  = regexp.MustCompile(`(?i)auth|key|token|secret|cookie`)
)

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

func (p Provider) secrets() []string { return append([]string{p.APIKey.Reveal()}, p.secretValues...) }

func (l *loader) readProviders(problems *strictyaml.Problems, v *strictyaml.Node) {
	eachEntry(problems, "providers", v, func(name string, line int, v *strictyaml.Node) {
		switch {
		case name == demo:
			problems.Add(line, "providers.demo is built in and cannot be configured: choose another name")
		case !providerForm.MatchString(name):
			problems.Add(line, "providers has the name %q: it must be 1 to 64 of a-z A-Z 0-9 _ -", name)
		default:
			r := &providerReader{mappingReader: mappingReader{loader: l, Problems: problems, where: "providers." + name + "."}}
			l.config.Providers[name] = r.read(name, v)
		}
	})
}

func (l *loader) readModels(problems *strictyaml.Problems, v *strictyaml.Node) {
	eachEntry(problems, "models", v, func(name string, line int, v *strictyaml.Node) {
		if err := checkModel(name); err != nil {
			problems.Add(line, "models has the name %q: %v", name, err)
		}
		var model Model
		where := "models." + name + "."
		problems.Fields(where, v, keyNames(ModelKeys), func(_ string, v *strictyaml.Node) {
			window, err := v.AsInt()
			switch {
			case err != nil:
				problems.Add(v.Line, "%scontext_window %v", where, err)
			case window < 1024 || window > 100_000_000:
				problems.Add(v.Line, "%scontext_window is %d: it must be 1024 to 100000000", where, window)
			}
			model.ContextWindow = int(window)
		})
		l.config.Models[name] = model
	})
}

// eachEntry goes through a mapping whose keys are names of the user's own.
func eachEntry(problems *strictyaml.Problems, where string, v *strictyaml.Node, each func(name string, line int, v *strictyaml.Node)) {
	var names []string
	lines := map[string]int{}
	for _, field := range v.Fields {
		names = append(names, field.Key)
		lines[field.Key] = field.Line
	}
	problems.Fields(where+".", v, names, func(name string, v *strictyaml.Node) { each(name, lines[name], v) })
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
	return secret
}

// newCredential is a secret that fits into a header.
func newCredential(text string) (Secret, error) {
	text = strings.TrimSpace(text)
	for _, r := range text {
		if r < ' ' || r == 0x7f {
			return Secret{}, errors.New("it holds a line break or another control character: it must be one line")
		}
	}
	if text == "" {
		return Secret{}, errors.New("it is empty")
	}
	return NewSecret(text), nil
}

// providerReader reads one provider of the config file.
type providerReader struct {
	mappingReader
	p    Provider
	keys []string // which of the api_key keys are there
}

func (r *providerReader) read(name string, v *strictyaml.Node) Provider {
	r.p.Name = name
	r.Fields(r.where, v, keyNames(ProviderKeys), r.key)
	if len(r.keys) > 1 {
		r.Add(v.Line, "%s has %s: give one of them", strings.TrimSuffix(r.where, "."), strings.Join(r.keys, " and "))
	}
	isShortcut := slices.ContainsFunc(shortcuts, func(s shortcut) bool { return s.provider == name })
	given := slices.ContainsFunc(v.Fields, func(f strictyaml.Field) bool { return f.Key == "base_url" })
	if !given && !isShortcut && v.Kind == strictyaml.Map {
		r.Add(v.Line, "%sbase_url is missing: give the endpoint's address, such as http://localhost:11434/v1", r.where)
	}
	if r.p.Profile.Name == "" {
		r.p.Profile.Name = "generic"
		if slices.Contains(ProfileNames, name) {
			r.p.Profile.Name = name
		}
	}
	if r.p.azureNeedsVersion() {
		r.Add(v.Line, "%squery must give api-version, such as 2024-10-21: Azure's API by deployments refuses every request without it; a base_url that ends in /openai/v1 needs none", r.where)
	}
	return r.p
}

func (r *providerReader) key(key string, v *strictyaml.Node) {
	p, profile := &r.p, &r.p.Profile
	switch key {
	case "base_url":
		p.BaseURL = r.baseURL(key, v)
	case "api_key", "api_key_env", "api_key_file":
		r.keys = append(r.keys, key)
		p.APIKey = r.credential(key, strings.TrimPrefix(strings.TrimPrefix(key, "api_key"), "_"), v)
	case "headers":
		r.headers(key, v)
	case "query":
		r.query(key, v)
	case "timeout":
		p.Timeout = r.timeout(key, v)
	case "profile":
		profile.Name = r.choice(key, v, ProfileNames...)
	case "max_tokens_field":
		profile.MaxTokensField = r.choice(key, v, "max_tokens", "max_completion_tokens")
	case "stream":
		profile.Stream = r.boolean(key, v)
	case "stream_usage":
		profile.StreamUsage = r.boolean(key, v)
	case "tool_choice":
		profile.ToolChoice = r.boolean(key, v)
	case "user":
		profile.User = r.boolean(key, v)
	case "empty_content":
		profile.EmptyContent = r.choice(key, v, "null", "string", "omit")
	case "tool_call_ids":
		profile.ToolCallIDs = r.choice(key, v, "any", "nine", "word")
	case "reasoning":
		profile.Reasoning = r.choice(key, v, "same", "never", "require")
	case "extra":
		r.extra(key, v)
	}
}

func (r *providerReader) baseURL(key string, v *strictyaml.Node) string {
	text, err := v.AsText()
	if err != nil {
		r.fault(v, key, err)
		return ""
	}
	base, err := baseURL(text)
	if err != nil {
		r.Add(v.Line, "%s%s: %v", r.where, key, err)
	}
	return base
}

// baseURL checks an endpoint's address. The error does not repeat it: it may
// hold a key.
func baseURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return "", errors.New("it must be an http or https address, such as http://localhost:11434/v1")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("it must not hold a user, a password, ? or #: give parameters by query, and secrets by api_key_env or headers")
	}
	return strings.TrimRight(text, "/"), nil
}

// readSecret reads a file of at most 16 KiB. The error does not repeat the
// path.
func readSecret(path string) (string, error) {
	const limit = 16 << 10
	file, err := os.Open(path)
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		return "", cause.Err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		return "", cause.Err
	}
	if len(text) > limit {
		return "", fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	return string(text), nil
}

func (r *providerReader) headers(key string, v *strictyaml.Node) {
	r.p.Headers = map[string]Secret{}
	eachEntry(r.Problems, r.where+key, v, func(name string, line int, v *strictyaml.Node) {
		label := key + "." + name
		if !headerForm.MatchString(name) {
			r.Add(line, "%s%s has the name %q, which is none for a header", r.where, key, name)
			return
		}
		if v.Kind != strictyaml.Map {
			r.header(name, r.credential(label, "", v), secretHeader.MatchString(name))
			return
		}
		r.reference(label, v, func(value Secret) { r.header(name, value, true) })
	})
}

func (r *providerReader) header(name string, value Secret, secret bool) {
	r.p.Headers[name] = value
	if secret {
		r.p.secretValues = append(r.p.secretValues, value.Reveal())
	}
}

// query reads the parameters of each request's address. A value that is looked up, or whose name
// speaks of a secret, is masked.
func (r *providerReader) query(key string, v *strictyaml.Node) {
	r.p.Query = map[string]Secret{}
	eachEntry(r.Problems, r.where+key, v, func(name string, line int, v *strictyaml.Node) {
		label := key + "." + name
		give := func(value Secret, secret bool) {
			r.p.Query[name] = value
			if secret {
				r.p.secretValues = append(r.p.secretValues, value.Reveal())
			}
		}
		switch {
		case !parameterForm.MatchString(name):
			r.Add(line, "%s%s has the name %q: it must be 1 to 64 of a-z A-Z 0-9 . _ ~ - $", r.where, key, name)
		case v.Kind != strictyaml.Map:
			give(r.credential(label, "", v), secretHeader.MatchString(name))
		default:
			r.reference(label, v, func(value Secret) { give(value, true) })
		}
	})
}

// azureNeedsVersion says whether Azure would refuse every request, for it asks for a version of its
// API by deployments.
func (p Provider) azureNeedsVersion() bool {
	_, given := p.Query["api-version"]
	return p.Profile.Name == "azure" && !given && p.BaseURL != "" && !strings.HasSuffix(p.BaseURL, "/v1")
}

func (r *providerReader) extra(key string, v *strictyaml.Node) {
	r.p.Profile.Extra = map[string]json.RawMessage{}
	eachEntry(r.Problems, r.where+key, v, func(name string, _ int, v *strictyaml.Node) {
		value, err := json.Marshal(v.Plain())
		if err != nil {
			r.fault(v, key+"."+name, errors.New("cannot be written as JSON"))
		}
		r.p.Profile.Extra[name] = value
	})
}

// ProviderNames lists the configured providers, sorted, without demo.
func (c *Config) ProviderNames() []string { return slices.Sorted(maps.Keys(c.Providers)) }
