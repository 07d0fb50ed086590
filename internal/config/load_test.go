package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/config"
)

func env(pairs map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := pairs[name]
		return value, ok
	}
}

// file writes a config file into an empty working directory.
func file(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile(config.DefaultFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestLoadWithoutAnything(t *testing.T) {
	t.Chdir(t.TempDir())
	got, err := config.Load(config.LoadOptions{Env: env(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default(), got, cmpopts.IgnoreUnexported(config.Config{})); diff != "" {
		t.Error(diff)
	}
	if !got.HasRole("worker") || !got.HasRole("scheduler") {
		t.Errorf("got %+v", got)
	}
}

func TestPrecedence(t *testing.T) {
	for _, c := range []struct {
		name string
		file string
		env  map[string]string
		flag map[string]string
		want int
	}{
		{"default", "", nil, nil, 3},
		{"file", "max_rounds: 4", nil, nil, 4},
		{"environment over file", "max_rounds: 4", map[string]string{"TURNKEEPER_MAX_ROUNDS": "5"}, nil, 5},
		{"flag over environment", "max_rounds: 4", map[string]string{"TURNKEEPER_MAX_ROUNDS": "5"},
			map[string]string{"max-rounds": "6"}, 6},
		{"empty variable is not set", "max_rounds: 4", map[string]string{"TURNKEEPER_MAX_ROUNDS": ""}, nil, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			file(t, c.file)
			got, err := config.Load(config.LoadOptions{Env: env(c.env), Flags: c.flag})
			if err != nil {
				t.Fatal(err)
			}
			if got.Bounds.MaxRounds != c.want {
				t.Errorf("max_rounds = %d, want %d", got.Bounds.MaxRounds, c.want)
			}
		})
	}
}

// agent overrides bounds, as an agent definition does.
type agent func(*turnkeeper.Bounds)

func (a agent) Bounds(base turnkeeper.Bounds) turnkeeper.Bounds {
	a(&base)
	return base
}

func TestBoundsForPutsTheAgentBetweenFlagAndEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	got, err := config.Load(config.LoadOptions{
		Env: env(map[string]string{"TURNKEEPER_MAX_ROUNDS": "5", "TURNKEEPER_MAX_TOOL_CALLS": "5",
			"TURNKEEPER_TOOL_TIMEOUT": "5s"}),
		Flags: map[string]string{"max-rounds": "6"},
	})
	if err != nil {
		t.Fatal(err)
	}
	merged := got.BoundsFor(agent(func(b *turnkeeper.Bounds) { b.MaxRounds, b.MaxToolCalls = 7, 7 }))
	if merged.MaxRounds != 6 || merged.MaxToolCalls != 7 || merged.ToolTimeout != 5*time.Second {
		t.Errorf("got %+v", merged)
	}
	if diff := cmp.Diff(bounds.Default(), config.Default().BoundsFor(agent(func(*turnkeeper.Bounds) {}))); diff != "" {
		t.Error(diff)
	}
}

// TestEverySettingFromEveryPlace checks that each setting reads back the value it writes, from each source.
func TestEverySettingFromEveryPlace(t *testing.T) {
	values := map[string]string{
		"agents_dir": "a", "data_dir": "d", "database_url": "postgres://h/db", "db_pool_size": "9",
		"migrate_on_start": "false",
		"default_model":    "demo/other", "extraction_model": "demo/small", "approve": "always", "roles": "worker",
		"worker_slots": "3", "detached_slots": "2", "shutdown_grace": "0", "retention.messages": "720h",
		"retention.outputs": "48h", "retention.events": "0", "retention.leases": "24h", "takeover_after": "0",
		"poll_interval": "7s", "max_dispatches_per_tick": "8", "max_message_bytes": "9", "max_sender_priority": "10",
		"max_result_memory": "300", "log_level": "debug", "log_format": "json", "reply_sink": "ask",
		"listen": "0.0.0.0:80", "allowed_hosts": "turns.example", "http_connections": "20", "http_rate": "21",
		"http_streams": "22", "four_eyes": "true",
		"otlp_endpoint": "http://collector:4318", "metrics_listen": "127.0.0.1:9464", "telemetry_content": "true",
		"max_rounds": "2", "round_ceiling": "4", "max_duration": "11s", "max_tool_calls": "0", "max_paging_calls": "5",
		"tool_timeout": "12s", "model_timeout": "13s", "model_idle_timeout": "14s", "continuation": "false",
		"paging": "false", "summarise": "false",
		"async": "false", "async_token_threshold": "16", "async_timeout": "19s", "output_handles": "true",
		"max_tool_result_chars": "15", "lease_ttl": "300s", "lease_margin": "16s", "freshness_window": "0",
		"cooldown_failures": "2", "cooldown_window": "17s", "cooldown": "18s", "max_attempts": "4",
		"max_dispatches": "5",
		"max_sub_agents": "6", "max_sub_agent_depth": "7", "max_tree_sub_agents": "8", "sub_agent_timeout": "9s",
		"give_up_after": "11s",
	}
	for _, s := range config.Settings() {
		if s.Name == "config" {
			continue
		}
		want := values[s.Name]
		if want == "" || want == s.Value(config.Default()) {
			t.Errorf("%s: the test has no value of its own", s.Name)
			continue
		}
		for place, options := range map[string]config.LoadOptions{
			"file":        {},
			"environment": {Env: env(map[string]string{s.Env: want})},
			"flag":        {Flags: map[string]string{s.Flag: want}},
		} {
			text := ""
			if place == "file" {
				text = s.Name + ": " + want
				if group, key, grouped := strings.Cut(s.Name, "."); grouped {
					text = group + ": {" + key + ": " + want + "}"
				}
			}
			file(t, text)
			if options.Env == nil {
				options.Env = env(nil)
			}
			got, err := config.Load(options)
			if err != nil {
				t.Errorf("%s from %s: %v", s.Name, place, err)
				continue
			}
			if s.Value(got) != want {
				t.Errorf("%s from %s is %s, want %s", s.Name, place, s.Value(got), want)
			}
		}
	}
}

func TestLoadReportsEveryFaultAtOnce(t *testing.T) {
	file(t, "max_rounds: 0\nmax_round: 2\nworker_slots: many\nroles: [worker, cook]\n")
	_, err := config.Load(config.LoadOptions{
		Env: env(map[string]string{"TURNKEEPER_MAX_ROUNDS": "40", "TURNKEEPER_TAKEOVER_AFTER": "10ms",
			"DATABASE_URL": "mysql://u:hunter22@h", "TURNKEEPER_LOG_LEVEL": "loud"}),
		Flags: map[string]string{"max-duration": "220s", "default-model": "openai/gpt",
			"extraction-model": "openrouter/tiny", "colour": "red", "poll-interval": "soon"},
	})
	want := `turnkeeper.yaml:1: max_rounds is 0: it must be 1 to 20
turnkeeper.yaml:2: unknown key "max_round" (did you mean "max_rounds"?)
turnkeeper.yaml:3: worker_slots must be a whole number, not text
turnkeeper.yaml:4: roles is worker,cook: it must be one of api, scheduler, webhooks, worker, or all
database_url (DATABASE_URL): it must be postgres://<user>:<password>@<host>:<port>/<database>, or pairs such as host=<host> user=<user> dbname=<database>
takeover_after (TURNKEEPER_TAKEOVER_AFTER) is 10ms: it must be 0, or 100ms to 24h
log_level (TURNKEEPER_LOG_LEVEL) is loud: it must be one of debug, info, warn, error
max_rounds (TURNKEEPER_MAX_ROUNDS) is 40: it must be 1 to 20
poll_interval (--poll-interval) is soon: it must be a duration such as 90s, 2m or 1h30m (a bare number is seconds)
--colour is not the flag of a setting
max_duration 3m40s plus the lease margin 30s must be less than the lease of 4m0s: lower max_duration or raise lease_ttl
default_model is openai/gpt: no provider openai is configured; set OPENAI_API_KEY, or add it to providers in the config file
extraction_model is openrouter/tiny: no provider openrouter is configured; set OPENROUTER_API_KEY, or add it to providers in the config file`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(message(err), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestLoadTogether(t *testing.T) {
	for _, c := range []struct {
		name string
		file string
		want string
	}{
		{"ceiling under rounds", "max_rounds: 5\nround_ceiling: 4",
			"round_ceiling is 4: it must not be less than max_rounds, which is 5"},
		{"takeover after the lease", "takeover_after: 300s",
			"takeover_after is 300s: it must not be more than lease_ttl, which is 240s"},
		{"model of nobody", "default_model: local/x",
			"default_model is local/x: no provider local is configured; add it to providers in the config file"},
		{"config in the config file", "config: x", `turnkeeper.yaml:1: unknown key "config"`},
		{"no value", "max_rounds:", `turnkeeper.yaml:1: key "max_rounds" has no value: set it or remove the line`},
		{"twice", "max_rounds: 3\nmax_rounds: 3", `turnkeeper.yaml:2: key "max_rounds" is already set on line 1`},
		{"no YAML", "max_rounds: [", "turnkeeper.yaml:1: invalid YAML: sequence end token ']' not found"},
		{"a list", "- a", "turnkeeper.yaml:1: the settings must be a mapping of keys to values, not a list"},
		{"empty path", "data_dir: ''", `turnkeeper.yaml:1: data_dir is "": it must not be empty`},
		{"comment only", "# nothing", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file(t, c.file)
			_, err := config.Load(config.LoadOptions{Env: env(nil)})
			if got := message(err); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestWhichFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for i, name := range []string{"option.yaml", "flag.yaml", "env.yaml", config.DefaultFile} {
		if err := os.WriteFile(name, []byte("worker_slots: "+string(rune('1'+i))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	options := config.LoadOptions{File: filepath.Join(dir, "option.yaml"),
		Flags: map[string]string{"config": "flag.yaml"}, Env: env(map[string]string{"TURNKEEPER_CONFIG": "env.yaml"})}
	for want, next := range []func(){
		1: func() {}, 2: func() {
			options.File = ""
		}, 3: func() { options.Flags = nil }, 4: func() { options.Env = env(nil) },
	} {
		if next == nil {
			continue
		}
		next()
		got, err := config.Load(options)
		if err != nil {
			t.Fatal(err)
		}
		if got.WorkerSlots != want {
			t.Errorf("read %s, want file %d", got.File, want)
		}
	}
	_, err := config.Load(config.LoadOptions{File: "missing.yaml", Env: env(nil)})
	if got, want := message(err),
		"the config file missing.yaml cannot be read: no such file or directory"; got != want {
		t.Errorf("got %s", got)
	}
}

func TestSettingsTable(t *testing.T) {
	names := map[string]bool{}
	for _, s := range config.Settings() {
		if names[s.Name] {
			t.Errorf("%s is there twice", s.Name)
		}
		names[s.Name] = true
		if s.Doc == "" || s.Type == "" || s.Group == "" || !strings.HasSuffix(s.Doc, ".") {
			t.Errorf("%s is not documented: %+v", s.Name, s)
		}
		if s.Type == "whole number" && s.Unit == "" {
			t.Errorf("%s has no unit", s.Name)
		}
		if s.Zero == "" && (s.Default == "" || strings.HasPrefix(s.Bounds, "0")) {
			t.Errorf("%s does not say what %q means", s.Name, "0 or nothing")
		}
		if !strings.Contains(s.Usage(), s.Env) {
			t.Errorf("%s: usage %q", s.Name, s.Usage())
		}
	}
	if slices.ContainsFunc(config.Settings(), func(s config.Setting) bool {
		return s.IsBool() != (s.Type == "true or false")
	}) {
		t.Error("IsBool is wrong")
	}
}

// TestKeysOfTheMappings checks that the structs and the reference have the same keys.
func TestKeysOfTheMappings(t *testing.T) {
	for _, c := range []struct {
		of   any
		keys []config.MappingKey
	}{
		{config.Provider{}, config.ProviderKeys}, {config.Model{}, config.ModelKeys}, {config.Tool{}, config.ToolKeys},
		{config.Webhook{}, config.WebhookKeys}, {config.MCPServer{}, config.MCPServerKeys}, {config.MCPToolSettings{},
			config.MCPToolKeys},
		{config.MCPOAuth{}, config.MCPOAuthKeys}, {config.MCPIdentity{}, config.MCPIdentityKeys},
	} {
		known := map[string]bool{}
		for _, k := range c.keys {
			known[k.Name] = true
			if k.Type == "" || k.Default == "" || !strings.HasSuffix(k.Doc, ".") {
				t.Errorf("%T has no %s, or it is not documented: %+v", c.of, k.Name, k)
			}
		}
		for _, key := range keysOf(reflect.TypeOf(c.of)) {
			if !known[key] {
				t.Errorf("%s of %T is not in the reference", key, c.of)
			}
		}
	}
}

func keysOf(of reflect.Type) (keys []string) {
	for field := range of.Fields() {
		if names := field.Tag.Get("yaml"); names != "" {
			keys = append(keys, strings.Split(names, ",")...)
		} else if field.Type.Kind() == reflect.Struct {
			keys = append(keys, keysOf(field.Type)...)
		}
	}
	return keys
}
