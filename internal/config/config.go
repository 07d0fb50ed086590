// Package config holds the settings of a process: one table says for each its
// name, variable, flag, type, bounds, zero and default, and from it come the
// flags, the reading, the checks at start and docs/configuration.md.
//
// A value is taken from, in this order: the flag, the environment, the config
// file, the default. (An agent's front matter goes between flag and
// environment where the same bound exists there; whoever runs the turn applies
// it.) An environment variable that is set to nothing counts as not set. What a
// higher place overrides must be correct all the same.
//
// The package reads the config file and the files that secrets are in, and
// nothing else. A Config is not written to once loaded, but by Learn, and is then
// safe for concurrent use.
package config

import (
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/redact"
)

// Roles of a process.
const (
	RoleWorker    = turnkeeper.RoleWorker // runs turns
	RoleScheduler = "scheduler"           // makes turns out of messages and schedules
	RoleAPI       = "api"                 // answers HTTP requests
	RoleWebhooks  = "webhooks"            // pushes replies to webhooks
)

// A Config is the settings of one process. Start from Default or Load.
type Config struct {
	File string // the config file that was read; empty: none
	// Missing are the secrets that could not be had, in the order of the file. Only
	// with LoadOptions.WithoutSecrets.
	Missing []MissingSecret

	DatabaseURL    DatabaseURL // not set: the private Postgres in DataDir
	DataDir        string      // relative: to the working directory, like every path here
	MigrateOnStart bool
	DBPoolSize     int

	AgentsDir    string
	DefaultModel string // "provider/model" for agents that name none
	// ExtractionModel searches stored tool results, for agents that name none.
	// Empty: the models of the agent's turns.
	ExtractionModel string
	Providers       map[string]Provider // by name, without the built-in demo
	Models          map[string]Model    // by "provider/model"
	Tools           map[string]Tool     // programs, by name
	Webhooks        map[string]Webhook  // by name
	MCPServers      map[string]MCPServer
	// MCPLoginKey seals people's logins to MCP servers: MCPLoginKeyBytes of it, in
	// base64. Not set: nobody can log in.
	MCPLoginKey Secret

	Roles       []string // sorted, each once
	WorkerSlots int      // turns at the same time
	// DetachedSlots is how many detached calls of each tool run at the same time;
	// 0: none.
	DetachedSlots int
	Bounds        turnkeeper.Bounds // of the process; those of an agent's turn are BoundsFor

	TakeoverAfter        time.Duration // silence after which a worker is lost; 0: only the lease's end tells
	PollInterval         time.Duration
	MaxDispatchesPerTick int
	ShutdownGrace        time.Duration // 0: turns are handed back at once
	Retention            time.Duration // closed messages older than this are removed; 0: none are
	MaxMessageBytes      int

	Listen          string   // host:port of the HTTP API; empty: it is off
	AllowedHosts    []string // names, beside its address and localhost, by which the API may be called
	HTTPConnections int      // of the API at the same time
	HTTPRate        int      // requests a second of one token, or of all without one

	OTLPEndpoint     string // base URL of an OTLP receiver; empty: nothing is sent
	MetricsListen    string // host:port of a listener for the metrics alone; empty: there is none
	TelemetryContent bool   // what is asked and answered goes into spans

	LogLevel  string // debug, info, warn, error
	LogFormat string // console, json

	fileSecrets []string // of the mappings in the config file, and of the variables that make providers
	otlpSecrets []string // of OpenTelemetry's own variables
	learnt      *redact.Register

	lower   turnkeeper.Bounds // without what flags say
	flagged []func(*Config)   // what flags say of bounds
}

// BoundsFor are the bounds of an agent's turns: those of the process, with the
// agent's overrides, and flags above both. An *agentdef.Definition is an agent.
func (c *Config) BoundsFor(agent interface {
	Bounds(turnkeeper.Bounds) turnkeeper.Bounds
}) turnkeeper.Bounds {
	merged := Config{Bounds: agent.Bounds(c.lower)}
	for _, apply := range c.flagged {
		apply(&merged)
	}
	return merged.Bounds
}

// A Model is what is known of a model.
type Model struct {
	ContextWindow int `yaml:"context_window" in:"1024 to 100000000"` // tokens; 0: not known
}

// Default is the settings of a process that sets none.
func Default() *Config {
	return &Config{
		lower:                turnkeeper.DefaultBounds(),
		learnt:               &redact.Register{},
		DataDir:              "./.turnkeeper",
		MigrateOnStart:       true,
		DBPoolSize:           8,
		AgentsDir:            "./agents",
		DefaultModel:         "demo/script",
		Providers:            map[string]Provider{},
		Models:               map[string]Model{},
		Tools:                map[string]Tool{},
		Webhooks:             map[string]Webhook{},
		MCPServers:           map[string]MCPServer{},
		Roles:                []string{RoleAPI, RoleScheduler, RoleWebhooks, RoleWorker},
		WorkerSlots:          10,
		DetachedSlots:        4,
		Bounds:               turnkeeper.DefaultBounds(),
		TakeoverAfter:        15 * time.Second,
		PollInterval:         5 * time.Second,
		MaxDispatchesPerTick: 100,
		ShutdownGrace:        25 * time.Second,
		MaxMessageBytes:      64 << 10,
		Listen:               "127.0.0.1:8722",
		HTTPConnections:      2000,
		HTTPRate:             1000,
		LogLevel:             "info",
		LogFormat:            "console",
	}
}

// A MissingSecret is a secret that the settings name, and that cannot be had or used here.
type MissingSecret struct {
	Setting string // "providers.acme.api_key_env"
	Problem string // the whole sentence, which begins with Setting
}

// Lacks returns the first missing secret of the settings that begin with the prefix, such as "providers.acme.";
// ok: there is one.
func (c *Config) Lacks(prefix string) (secret MissingSecret, ok bool) {
	for _, m := range c.Missing {
		if strings.HasPrefix(m.Setting, prefix) {
			return m, true
		}
	}
	return MissingSecret{}, false
}

// HasRole says that the process plays the role.
func (c *Config) HasRole(role string) bool { return slices.Contains(c.Roles, role) }

// Secrets lists every secret value of the settings, in the forms that they
// stand there, for a masker: sorted, each once, none empty.
func (c *Config) Secrets() []string {
	secrets := slices.Concat(c.DatabaseURL.secrets(), c.fileSecrets, c.otlpSecrets)
	slices.Sort(secrets)
	secrets = slices.Compact(secrets)
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

// Masker masks the secrets of the settings, and those that Learn was told of, also
// after the masker was made.
func (c *Config) Masker() *redact.Masker { return redact.NewWith(c.Secrets(), c.learnt) }

// Learn has a secret masked that is in no settings: a token that the process was
// given.
func (c *Config) Learn(secret string) { c.learnt.Add(secret) }
