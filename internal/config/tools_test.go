package config_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper/internal/config"
	"turnkeeper/policy"
)

func TestToolsFromTheFile(t *testing.T) {
	file(t, `
tools:
  plain: {description: Tells the date., command: [date]}
  count:
    description: Counts.
    command: [python3, count.py, "-n"]
    arguments: {type: object, properties: {n: {type: integer, maximum: 9}}}
    effect: keyed
    timeout: 5s
    detached: true
    background: true
    dir: ./work
    env:
      LANG: C.UTF-8
      API_TOKEN: literal-token
      KEY: {env: COUNT_KEY}
      CERTIFICATE: {file: key.txt}
    max_output: 1000
    media_type: image/png
`)
	if err := os.WriteFile("key.txt", []byte("file-key-00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(config.LoadOptions{Env: env(map[string]string{"COUNT_KEY": "count-key-0"})})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]config.Tool{
		"plain": {Name: "plain", Description: "Tells the date.", Command: []string{"date"}, Effect: "once"},
		"count": {
			Name: "count", Description: "Counts.", Command: []string{"python3", "count.py", "-n"},
			Arguments: json.RawMessage(`{"properties":{"n":{"maximum":9,"type":"integer"}},"type":"object"}`),
			Effect:    "keyed", Timeout: 5 * time.Second, Detached: true,
			ToolSwitches: config.ToolSwitches{Background: new(true)}, Dir: "./work",
			Output: config.ProgramOutput{MaxOutput: 1000, MediaType: "image/png"},
			Env: map[string]config.Secret{
				"LANG": config.NewSecret("C.UTF-8"), "API_TOKEN": config.NewSecret("literal-token"),
				"KEY": config.NewSecret("count-key-0"), "CERTIFICATE": config.NewSecret("file-key-00"),
			},
		},
	}
	reveal := cmp.Transformer("reveal", func(s config.Secret) string { return s.Reveal() })
	if diff := cmp.Diff(want, got.Tools, reveal, cmpopts.IgnoreUnexported(config.Tool{})); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"count-key-0", "file-key-00", "literal-token"}, got.Secrets()); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
}

func TestFaultsOfTools(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"name", "tools: {a b: {description: x, command: [y]}}", `tools has the name "a b": it must be 1 to 64`},
		{"nothing", "tools: {a: {}}", "tools.a.description is missing"},
		{"no command", "tools: {a: {description: x}}", "tools.a.command is missing"},
		{"empty command", "tools: {a: {description: x, command: []}}", "tools.a.command must start with a program"},
		{"a command in one text", "tools: {a: {description: x, command: ls -l}}", "tools.a.command must be a list"},
		{"effect", "tools: {a: {description: x, command: [y], effect: twice}}",
			`tools.a.effect is "twice": it must be one of none, keyed, once`},
		{"timeout", "tools: {a: {description: x, command: [y], timeout: 25h}}",
			"tools.a.timeout is 25h: it must be 0 to 24h"},
		{"detached", "tools: {a: {description: x, command: [y], timeout: 1h, detached: perhaps}}",
			"tools.a.detached must be true or false"},
		{"detached without a timeout", "tools: {a: {description: x, command: [y], detached: true}}",
			"tools.a.detached requires a timeout"},
		{"an early effect", "tools: {a: {description: x, command: [y], early: true}}",
			"tools.a.early is only for tools that read: it requires effect: none, and the effect is once"},
		{"a kept effect", "tools: {a: {description: x, command: [y], effect: keyed, cache: 10m}}",
			"tools.a.cache is only for tools that read: it requires effect: none, and the effect is keyed"},
		{"an early job", "tools: {a: {description: x, command: [y], effect: none, early: true, detached: true, timeout: 1h}}",
			"tools.a.early excludes detached: true"},
		{"cache", "tools: {a: {description: x, command: [y], effect: none, cache: 25h}}",
			"tools.a.cache is 25h: it must be 0 to 24h"},
		{"cache scope", "tools: {a: {description: x, command: [y], effect: none, cache: 1h, cache_scope: user}}",
			`tools.a.cache_scope is "user": it must be one of conversation, agent`},
		{"an early effect of a server", "mcp_servers: {s: {command: [y], tools: {t: {early: true}}}}",
			"mcp_servers.s.tools.t.early is only for tools that read: it requires effect: none, and the effect is once"},
		{"a kept effect of a server", "mcp_servers: {s: {command: [y], effect: keyed, trust_hints: true, tools: {t: {cache: 1h}}}}",
			"mcp_servers.s.tools.t.cache is only for tools that read: it requires effect: none, and the effect is keyed"},
		{"a kept form", "mcp_servers: {s: {command: [y], effect: none, elicitation: ask, tools: {t: {cache: 1h}}}}",
			"mcp_servers.s.tools.t.cache excludes elicitation: ask"},
		{"output", "tools: {a: {description: x, command: [y], max_output: 10000001}}",
			"tools.a.max_output is 10000001: it must be 1 to 10000000"},
		{"schema", "tools: {a: {description: x, command: [y], arguments: text}}",
			"tools.a.arguments must be a JSON Schema, written as a mapping, not text"},
		{"variable's name", "tools: {a: {description: x, command: [y], env: {A-B: x}}}",
			`tools.a.env has the name "A-B"`},
		{"the call's variable", "tools: {a: {description: x, command: [y], env: {TURNKEEPER_X: x}}}",
			"tools.a.env.TURNKEEPER_X: names that begin with TURNKEEPER_"},
		{"variable not set", "tools: {a: {description: x, command: [y], env: {A: {env: NOT_THERE}}}}",
			`tools.a.env.A.env names the variable "NOT_THERE", which is not set`},
		{"unknown key", "tools: {a: {description: x, command: [y], cmd: z}}", `unknown key "tools.a.cmd"`},
		{"twice", "tools:\n  a: {description: x, command: [y]}\n  a: {description: x, command: [y]}",
			`key "tools.a" is already set on line 2`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file(t, tt.text)
			_, err := config.Load(config.LoadOptions{Env: env(nil)})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(),
				"turnkeeper.yaml:") {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// TestReadsFromTheFile checks the switches of reads where they are allowed.
func TestReadsFromTheFile(t *testing.T) {
	file(t, `
tools:
  http_get: {early: true, cache: 10m, cache_scope: agent}
  clock: {cache: 0, early: false}
  find: {description: Finds., command: [find], effect: none, early: true, cache: 24h}
mcp_servers:
  crm:
    command: [crm]
    trust_hints: true
    tools: {find: {early: true, cache: 1m}, get: {effect: none, cache: 1h, cache_scope: conversation}}
`)
	got, err := config.Load(config.LoadOptions{Env: env(nil)})
	if err != nil {
		t.Fatal(err)
	}
	crm := got.MCPServers["crm"].Tools
	for name, c := range map[string]struct{ got, want config.ReadSwitches }{
		"http_get": {got.Tools["http_get"].Reads,
			config.ReadSwitches{Early: new(true), Cache: new(10 * time.Minute), CacheScope: "agent"}},
		"clock":    {got.Tools["clock"].Reads, config.ReadSwitches{Early: new(false), Cache: new(time.Duration(0))}},
		"find":     {got.Tools["find"].Reads, config.ReadSwitches{Early: new(true), Cache: new(24 * time.Hour)}},
		"crm.find": {crm["find"].Reads, config.ReadSwitches{Early: new(true), Cache: new(time.Minute)}},
		"crm.get":  {crm["get"].Reads, config.ReadSwitches{Cache: new(time.Hour), CacheScope: "conversation"}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestLabelsFromTheFile checks labels of tools and servers, and that an empty list is not the same as none.
func TestLabelsFromTheFile(t *testing.T) {
	file(t, `
tools:
  http_get: {labels: [untrusted]}
  mail: {description: Sends., command: [mail], sinks: [changes, sends], destination: to, destinations: ["*@example.com"]}
mcp_servers:
  crm:
    command: [crm]
    labels: [untrusted, private]
    sinks: [changes]
    tools: {find: {labels: []}, add: {sinks: [sends], destination: [to, cc]}}
`)
	got, err := config.Load(config.LoadOptions{Env: env(nil)})
	if err != nil {
		t.Fatal(err)
	}
	crm := got.MCPServers["crm"]
	for name, c := range map[string]struct{ got, want policy.Flow }{
		"http_get": {got.Tools["http_get"].Policy(), policy.Flow{Labels: []policy.Label{policy.Untrusted}}},
		"mail": {got.Tools["mail"].Policy(), policy.Flow{
			Sinks: []policy.Sink{policy.Changes, policy.Sends}, Destination: []string{"to"},
			Destinations: []string{"*@example.com"},
		}},
		"crm": {crm.Policy(), policy.Flow{Labels: []policy.Label{policy.Untrusted, policy.Private},
			Sinks: []policy.Sink{policy.Changes}}},
		"crm.find": {crm.Tools["find"].Policy().Or(crm.Policy()), policy.Flow{Labels: []policy.Label{},
			Sinks: []policy.Sink{policy.Changes}}},
		"crm.add": {crm.Tools["add"].Policy().Or(crm.Policy()), policy.Flow{
			Labels: []policy.Label{policy.Untrusted, policy.Private}, Sinks: []policy.Sink{policy.Sends},
			Destination: []string{"to", "cc"},
		}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for line, want := range map[string]string{
		"labels: [secret]":                 `labels holds "secret": a label is untrusted or private`,
		"labels: [private, private]":       `labels has "private" twice`,
		"sinks: [sends, mails]":            `sinks holds "mails": a sink is changes or sends`,
		`destinations: ["*"]`:              `destinations holds "*": it would allow every destination`,
		`destinations: ["https://**x"]`:    `** can only be the end of a URL`,
		`destinations: ["https://x/../y"]`: `destinations holds "https://x/../y": its path must have no . or .. segments`,
		`destination: [to, to]`:            `destination has "to" twice`,
		`destination: ""`:                  `destination: it must not be empty`,
		`destination: {to: cc}`:            `destination must be text, not a mapping`,
	} {
		file(t, "tools:\n  http_get: {"+line+"}\n")
		if _, err := config.Load(config.LoadOptions{Env: env(nil)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
