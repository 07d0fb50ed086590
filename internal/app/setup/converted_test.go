package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference/demo"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/config"
	"turnkeeper/internal/golden"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
	"turnkeeper/tools/program"
)

// everySetting is a config file whose values differ from each other and from the defaults.
const everySetting = `
default_model: plain/default
extraction_model: plain/extraction
mcp_login_key: {env: LOGIN_KEY}
providers:
  plain: {base_url: "http://127.0.0.1:1/v1"}
  full:
    base_url: http://127.0.0.1:2/v1
    stream: false
    timeout: 7s
    stream_usage: false
    tool_choice: false
    user: false
    separates_reasoning: true
    max_tokens_field: max_completion_tokens
    empty_content: omit
    tool_call_ids: nine
    reasoning: require
    extra: {seed: 7}
tools:
  tell:
    description: Tells.
    command: [sh, -c, 'echo "${PWD##*/} $A $B $1"; echo 3456789', name, argument]
    arguments: {type: object, properties: {n: {type: integer}}}
    effect: keyed
    timeout: 6s
    detached: true
    background: true
    freshness: 11s
    repeat: allow
    max_result_chars: 12
    approve: always
    labels: [untrusted]
    sinks: [sends]
    destination: to
    destinations: ["*@example.com"]
    dir: DIR
    env: {B: of-b, A: {env: ROBOT}}
    max_output: 35
    media_type: text/html
  again: {description: Again., command: [echo, x], freshness: 0}
  seek: {description: Seeks., command: [echo, x], effect: none, early: true, cache: 13s, cache_scope: agent}
  clock:
    timeout: 21s
    freshness: 0
    repeat: guard
    early: true
    cache: 24s
    cache_scope: agent
    max_result_chars: 23
    background: false
    approve: never
    labels: [private]
mcp_servers:
  local:
    command: [serve, it]
    dir: some/folder
    env: {B: of-b, A: of-a}
    session: lane
    connect_timeout: 31s
    idle_timeout: 32s
    protocol: "2025-06-18"
    effect: keyed
    trust_hints: true
    timeout: 33s
    background: true
    approve: always
    labels: [untrusted]
    sinks: [changes]
    destination: [to, cc]
    destinations: ["*@h.example"]
    on_change: refuse
    elicitation: defaults
    sampling: allow
    max_sampling_calls: 34
    max_sampling_tokens: 35
    roots: [/one, /two]
    tools:
      print: {effect: once, timeout: 36s, freshness: 37s, repeat: guard, max_result_chars: 38, background: true, approve: never, labels: [private], sinks: [sends]}
      scan: {effect: none, freshness: 0, early: true, cache: 39s, cache_scope: agent}
  remote:
    url: https://h.example/mcp?token=x
    headers: {X-A: of-a, X-B: of-b}
    elicitation: ask
    oauth:
      grant: enterprise
      client_id: robot
      client_secret: {env: ROBOT}
      issuer: https://issuer.example
      scopes: [one, two]
      identity: {token_endpoint: "https://id.example/token", client_id: me, client_secret: {env: IDENTITY}, token: {env: TOKEN}}
  person:
    url: https://p.example/mcp
    oauth: {grant: authorization_code, client_id: p, client_metadata_url: "https://me.example/client", redirect_port: 8123}
  machine:
    url: https://m.example/mcp
    oauth: {grant: client_credentials, client_id: m, client_secret: {env: ROBOT}, token_endpoint: "https://m.example/token"}
`

func loadEverySetting(t *testing.T) (*config.Config, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "turnkeeper.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(everySetting, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"LOGIN_KEY": strings.Repeat("a2tr", 10) + "a2s=", "ROBOT": "robot-secret",
		"IDENTITY": "identity-secret", "TOKEN": "token-secret"}
	cfg, err := config.Load(config.LoadOptions{File: file, Env: func(name string) (string, bool) {
		v, ok := variables[name]
		return v, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, dir
}

// TestEverySettingArrives records what tools, MCP servers and providers are made of settings that all differ.
func TestEverySettingArrives(t *testing.T) {
	cfg, dir := loadEverySetting(t)
	var lines []string
	add := func(name string, value any) { lines = append(lines, golden.Fields(name, reflect.ValueOf(value))...) }
	for _, tool := range Programs(cfg) {
		add("program "+tool.Spec().Name, tool.Spec())
		result, err := tool.Run(t.Context(), tools.Call{Arguments: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		collected, err := tools.Collect(t.Context(), result)
		if err != nil {
			t.Fatal(err)
		}
		add("result of "+tool.Spec().Name, collected)
	}
	known, err := KnownTools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"clock", "again", "tell"} {
		spec, _ := known.Spec(name)
		spec.Parameters, spec.Description = nil, ""
		add("tool "+name, spec)
	}
	for _, server := range mcpServers(cfg) {
		add("server "+server.Name, server)
		if masked := server.Mask("a robot-secret", 0, 14); masked != "a [redacted]" {
			t.Errorf("%s masks a secret as %q", server.Name, masked)
		}
		if server.OAuth != nil {
			token, err := server.OAuth.Identity.Token()
			add("token of "+server.Name, fmt.Sprintf("%s, %v", token, err))
		}
		wants, err := MCPWantsLogin(cfg, server.Name)
		lines = append(lines, fmt.Sprintf("%s: at %s, wants a login %t, %v, port %d", server.Name, whereIs(server),
			wants, err, MCPRedirectPort(cfg, server.Name)))
		for _, tool := range []string{"print", "scan", "other"} {
			lines = append(lines, fmt.Sprintf("%s.%s has effect %q", server.Name, tool,
				MCPEffect(cfg, mcpdef.Tool{Server: server.Name, Name: tool})))
		}
	}
	_, err = MCPWantsLogin(cfg, "nobody")
	lines = append(lines, fmt.Sprintf("nobody: %v, port %d, effect %q", err, MCPRedirectPort(cfg, "nobody"),
		MCPEffect(cfg, mcpdef.Tool{Server: "nobody", Name: "x"})))
	add("access", mcpAccess(cfg, nil))
	for _, used := range []string{"local", "remote", "person", "machine", "nobody"} {
		agents := []*agentdef.Definition{{}, {MCPServers: []agentdef.MCPServer{{Name: used}}}}
		lines = append(lines, fmt.Sprintf("an agent uses %s: logins are used: %t", used, MCPLoginsUsed(cfg, agents)))
	}
	golden.File(t, filepath.Join("testdata", "settings.txt"), strings.ReplaceAll(strings.Join(lines, "\n"),
		dir, "DIR")+"\n")
}

// TestEveryProfileOfAProvider records the profiles that settings change, at a public and a private address, and which
// provider a model has.
func TestEveryProfileOfAProvider(t *testing.T) {
	cfg, _ := loadEverySetting(t)
	var lines []string
	for _, name := range []string{"openai", "openrouter", "azure", "deepseek", "ollama", "mistral", "generic"} {
		profile, ok := openai.ProfileNamed(name)
		if !ok {
			t.Fatalf("there is no profile %s", name)
		}
		for _, address := range []string{"https://api.example.com/v1", "http://127.0.0.1:1/v1"} {
			for _, provider := range []config.Provider{
				{}, cfg.Providers["full"],
				{Profile: config.Profile{Stream: new(true), StreamUsage: new(true), ToolChoice: new(true),
					User: new(true), Separates: new(false)}},
			} {
				provider.BaseURL = address
				lines = append(lines, fmt.Sprintf("%s at %s with %d overrides", name, address,
					len(golden.Fields("", reflect.ValueOf(provider.Profile)))))
				lines = append(lines, golden.Fields("  ", reflect.ValueOf(adjusted(profile, provider)))...)
			}
		}
	}
	cfg.Models["demo/script"], cfg.Models["full/set"] = config.Model{ContextWindow: 5000},
		config.Model{ContextWindow: 6000}
	models, err := NewModels(cfg, func(string) (*demo.Script, bool) {
		return nil, false
	}, nil, cfg.Masker(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"full/a", "full/set", "full/a/b", "plain/a", "demo/script", "demo/other", "openai/a",
		"nobody/a", "full/", "full", ""} {
		provider, info, err := models.Find(name)
		lines = append(lines, fmt.Sprintf("%q: %T, %+v, %v", name, provider, info, err))
	}
	for _, name := range []string{"full", "plain"} {
		limited, ok := models.Providers[name].(maskedProvider).Provider.(limitedProvider)
		lines = append(lines, fmt.Sprintf("%s is limited: %t, as %q to %s", name, ok, limited.name, limited.limit))
	}
	golden.File(t, filepath.Join("testdata", "profiles.txt"), strings.Join(lines, "\n")+"\n")
}

// TestEveryKeyIsRegistered records what is registered of agents with all keys, and with none.
func TestEveryKeyIsRegistered(t *testing.T) {
	cfg, _ := loadEverySetting(t)
	var lines []string
	for name, text := range map[string]string{
		"all": "---\ndescription: Has all.\nmodel: full/main\nfallback_models: [nobody/b, demo/script]\nlane: conversation\nmax_running: 3\ngive_up_after: 2h\n" +
			"budget: {day_tokens: 100000, day_calls: 7}\nschedule:\n- {name: a, cron: \"@daily\", time_zone: Europe/Berlin, conversation: c, message: Go.}\n- {cron: \"@hourly\"}\n" +
			"levels:\n  low: {model: nobody/low, schedules: false}\n  critical: {model: nobody/critical, min_priority: 5}\n---\nHi.\n",
		"away": "---\nmodel: nobody/main\nfallback_models: [nobody/b]\nlevels: {low: {schedules: false}}\n---\nHi.\n",
		"none": "---\n---\nHi.\n",
	} {
		def, err := agentdef.Parse(filepath.Join("agents", name+".md"), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, golden.Fields(name, reflect.ValueOf(registrationOf(def, cfg)))...)
		lines = append(lines, fmt.Sprintf("%s has levels %t", name, levelsOf(def, cfg) != nil))
	}
	slices.Sort(lines)
	golden.File(t, filepath.Join("testdata", "registrations.txt"), strings.Join(lines, "\n")+"\n")
}

// TestWhatServersLack records what is said of tools of MCP servers that agents list.
func TestWhatServersLack(t *testing.T) {
	found := []mcpdef.Tool{
		{Server: "desk", Name: "print", Seen: mcpdef.Definition{Schema: `{"type":"object"}`}},
		{Server: "desk", Name: "scan", Seen: mcpdef.Definition{Schema: `{"type":"nothing"}`}},
	}
	agents := []*agentdef.Definition{
		{Path: "a.md", MCPServers: []agentdef.MCPServer{{Name: "shop", Tools: []string{"copy"}},
			{Name: "desk", Tools: []string{"print", "scan", "copy"}}}},
		{Path: "b.md", MCPServers: []agentdef.MCPServer{{Name: "desk", Tools: []string{"print", "fax"}}}},
	}
	golden.File(t, filepath.Join("testdata", "lacks.txt"), strings.Join(lackingTools("desk", found, agents), "\n")+"\n")
}

// TestAReservedName checks that no tool can take the name of the tool that calls sub-agents, and that settings of
// unknown tools are refused where all tools are known.
func TestAReservedName(t *testing.T) {
	reserved := program.Tool(tools.Spec{Name: turnkeeper.ToolSpawnAgent, Description: "Spawns."},
		program.Program{Argv: []string{"true"}})
	if _, err := KnownTools(config.Default(), reserved); err == nil || !strings.Contains(err.Error(),
		"reserved for calling sub-agents") {
		t.Errorf("a reserved name: %v", err)
	}
	cfg := config.Default()
	cfg.Tools["mine"] = config.Tool{Name: "mine", Timeout: time.Second}
	registry, err := KnownTools(cfg)
	if err != nil {
		t.Fatalf("settings of a tool that another program has: %v", err)
	}
	err = configure(registry, cfg, true)
	if err == nil || !strings.HasPrefix(err.Error(),
		"tools.mine has no command, so its name must be that of a built-in tool or one registered in Go: ") {
		t.Errorf("settings of an unknown tool: %v", err)
	}
}
