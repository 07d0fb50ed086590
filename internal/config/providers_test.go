package config_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper/internal/config"
)

func TestProvidersFromTheFile(t *testing.T) {
	file(t, `
database_url: postgres://bob:p%40ss-word@db:5432/x?sslpassword=other-one
default_model: local/qwen3
providers:
  local:
    base_url: http://localhost:11434/v1/
    profile: ollama
    timeout: 120s
    stream: false
    max_tokens_field: max_completion_tokens
    extra:
      seed: 7
      provider: {order: [a, b]}
  azure:
    base_url: https://x.example/v1
    api_key_env: AZURE_KEY
    headers:
      X-Title: Turnkeeper
      X-Token: literal-token
      api-version: {env: AZURE_VERSION}
    query:
      region: eu
      sig: {env: AZURE_SIGNATURE}
      token: token-in-query
  mistral:
    base_url: https://api.mistral.ai/v1
    api_key_file: key.txt
  openrouter:
    api_key: inline-key-0
models:
  local/qwen3: {context_window: 40960}
`)
	if err := os.WriteFile("key.txt", []byte("file-key-00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(config.LoadOptions{Env: env(map[string]string{"AZURE_KEY": "azure-key-0",
		"AZURE_VERSION": "version-1", "AZURE_SIGNATURE": "signature-1"})})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]config.Provider{
		"local": {
			Name: "local", BaseURL: "http://localhost:11434/v1", Timeout: 120 * time.Second,
			Profile: config.Profile{
				Name: "ollama", Stream: new(false), MaxTokensField: "max_completion_tokens",
				Extra: map[string]json.RawMessage{"seed": json.RawMessage("7"),
					"provider": json.RawMessage(`{"order":["a","b"]}`)},
			},
		},
		"azure": {
			Name: "azure", BaseURL: "https://x.example/v1", APIKey: config.NewSecret("azure-key-0"),
			Profile: config.Profile{Name: "azure"},
			Query: map[string]config.Secret{"region": config.NewSecret("eu"), "sig": config.NewSecret("signature-1"),
				"token": config.NewSecret("token-in-query")},
			Headers: map[string]config.Secret{"X-Title": config.NewSecret("Turnkeeper"),
				"X-Token": config.NewSecret("literal-token"), "api-version": config.NewSecret("version-1")},
		},
		"mistral": {Name: "mistral", BaseURL: "https://api.mistral.ai/v1", APIKey: config.NewSecret("file-key-00"),
			Profile: config.Profile{Name: "mistral"}},
		"openrouter": {Name: "openrouter", BaseURL: "https://openrouter.ai/api/v1",
			APIKey: config.NewSecret("inline-key-0"), Profile: config.Profile{Name: "openrouter"}},
	}
	if diff := cmp.Diff(want, got.Providers, cmpopts.IgnoreUnexported(config.Provider{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]config.Model{"local/qwen3": {ContextWindow: 40960}}, got.Models); diff != "" {
		t.Error(diff)
	}
	secrets := []string{"azure-key-0", "file-key-00", "inline-key-0", "literal-token", "other-one", "p%40ss-word",
		"p@ss-word", "signature-1", "token-in-query", "version-1"}
	if diff := cmp.Diff(secrets, got.Secrets()); diff != "" {
		t.Error(diff)
	}
}

func TestProvidersFromVariables(t *testing.T) {
	for _, c := range []struct {
		name string
		file string
		env  map[string]string
		want map[string][2]string // name to address and key
	}{
		{"none", "", nil, map[string][2]string{}},
		{"OpenAI", "", map[string]string{"OPENAI_API_KEY": "k1"},
			map[string][2]string{"openai": {"https://api.openai.com/v1", "k1"}}},
		{"another address", "", map[string]string{"OPENAI_API_KEY": "k1", "OPENAI_BASE_URL": "http://l/v1"},
			map[string][2]string{"openai": {"http://l/v1", "k1"}}},
		{"an address without key", "", map[string]string{"OPENAI_BASE_URL": "http://l/v1"},
			map[string][2]string{"openai": {"http://l/v1", ""}}},
		{"OpenRouter", "", map[string]string{"OPENROUTER_API_KEY": "k2"},
			map[string][2]string{"openrouter": {"https://openrouter.ai/api/v1", "k2"}}},
		{"file has the key", "providers: {openai: {api_key: k3}}", map[string]string{"OPENAI_API_KEY": "k1"},
			map[string][2]string{"openai": {"https://api.openai.com/v1", "k3"}}},
		{"file has only a profile", "providers: {openai: {stream: false}}", map[string]string{"OPENAI_API_KEY": "k1"},
			map[string][2]string{"openai": {"https://api.openai.com/v1", "k1"}}},
		{"key never goes to the file's address", "providers: {openai: {base_url: \"http://other/v1\"}}",
			map[string]string{"OPENAI_API_KEY": "k1"}, map[string][2]string{"openai": {"http://other/v1", ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file(t, c.file)
			config, err := config.Load(config.LoadOptions{Env: env(c.env)})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][2]string{}
			for name, p := range config.Providers {
				got[name] = [2]string{p.BaseURL, p.APIKey.Reveal()}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProvidersRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		line string // a setting of the provider local, whose address is valid
		want string
	}{
		{"missing variable", "api_key_env: NO_SUCH",
			`:4: providers.local.api_key_env names the variable "NO_SUCH", which is not set`},
		{"the key in place of its name", "api_key_env: sk-hush-hush",
			":4: providers.local.api_key_env must be the name of a variable, such as MY_API_KEY"},
		{"missing file", "api_key_file: nowhere",
			`:4: providers.local.api_key_file names the file "nowhere": it cannot be read: no such file or directory`},
		{"folder for a file", "api_key_file: .",
			`:4: providers.local.api_key_file names the file ".": it cannot be read: is a directory`},
		{"two keys", "{api_key: a, api_key_env: GOOD}",
			":3: providers.local has api_key and api_key_env: set only one of them"},
		{"key of two lines", `api_key: "hush\nhush"`,
			":4: providers.local.api_key: it has a line break or another control character: it must be one line"},
		{"key as number", "api_key: 12345678",
			":4: providers.local.api_key must be text, not a number: put it in quotes"},
		{"unknown key", "apikey: hush-hush", `:4: unknown key "providers.local.apikey" (did you mean "api_key"?)`},
		{"bad profile", "profile: gpt",
			`:4: providers.local.profile is "gpt": it must be one of anthropic, azure, deepseek, gemini, generic, llamacpp, mistral, ollama, openai, openrouter, vllm`},
		{"bad header", "headers: {\"a b\": c}",
			`:4: providers.local.headers has the name "a b": it must be the name of a header`},
		{"header by nothing", "headers: {a: {}}", ":4: providers.local.headers.a must have either env or file"},
		{"bad parameter", "query: {\"a b\": c}",
			`:4: providers.local.query has the name "a b": it must be 1 to 64 of a-z A-Z 0-9 . _ ~ - $`},
		{"parameter by a missing variable", "query: {sig: {env: NO_SUCH}}",
			`:4: providers.local.query.sig.env names the variable "NO_SUCH", which is not set`},
		{"Azure without a version", "profile: azure",
			":4: providers.local.query must have api-version, such as 2024-10-21: Azure's deployments API refuses every request without it; a base_url that ends in /openai/v1 does not need it"},
		{"long timeout", "timeout: 25h", ":4: providers.local.timeout is 25h: it must be 0 to 24h"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := "\n    base_url: http://h/openai\n"
			text := "# one\nproviders:\n  local:\n    " + c.line + body
			if c.line[0] == '{' {
				text = "# one\nproviders:\n  local: " + c.line[:len(c.line)-1] + ", base_url: \"http://h/openai\"}\n"
			}
			file(t, text)
			_, err := config.Load(config.LoadOptions{Env: env(map[string]string{"GOOD": "good-key"})})
			if got, want := message(err), "turnkeeper.yaml"+c.want; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	for _, c := range []struct{ name, file, want string }{
		{"demo", "providers: {demo: {base_url: \"http://h\"}}",
			":1: providers.demo is built in and cannot be configured: choose another name"},
		{"bad name", "providers: {a b: {base_url: \"http://h\"}}",
			`:1: providers has the name "a b": it must be 1 to 64 of a-z A-Z 0-9 _ -`},
		{"no address", "providers: {x: {profile: vllm}}",
			":1: providers.x.base_url is missing: set the endpoint's address, such as http://localhost:11434/v1"},
		{"no http", "providers: {x: {base_url: \"ftp://h\"}}",
			":1: providers.x.base_url: it must be an http or https address, such as http://localhost:11434/v1"},
		{"password in the address", "providers: {x: {base_url: \"http://u:hush@h\"}}",
			":1: providers.x.base_url: it must not have a user, a password, ? or #: set parameters in query, and secrets in api_key_env or headers"},
		{"not a mapping", "providers: [x]", ":1: providers must be a mapping of keys to values, not a list"},
		{"model without provider", "models: {gpt: {context_window: 5000}}",
			`:1: models has the name "gpt": it must be PROVIDER/MODEL, such as openai/gpt-5-mini`},
		{"small window", "models: {a/b: {context_window: 5}}",
			":1: models.a/b.context_window is 5: it must be 1024 to 100000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file(t, c.file)
			_, err := config.Load(config.LoadOptions{Env: env(nil)})
			if got, want := message(err), "turnkeeper.yaml"+c.want; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
