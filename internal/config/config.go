// Package config loads the settings of a process. One table has the name, variable, flag, type,
// bounds, meaning of zero and default of each setting; the flags, the loader, the checks at start and
// docs/configuration.md are made from it.
//
// The value of a setting is the first of: flag, environment, config file, default. (An agent's front
// matter comes between flag and environment for the bounds it has; see BoundsFor.) An empty environment
// variable counts as not set. Overridden values are checked too.
//
// The package reads only the config file and files of secrets. A loaded Config is safe for concurrent
// use; only Learn changes it.
package config

import (
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/redact"
	"turnkeeper/internal/retention"
	"turnkeeper/policy"
)

// Roles of a process.
const (
	RoleWorker    = presence.RoleWorker    // runs turns
	RoleScheduler = presence.RoleScheduler // dispatches turns
	RoleAPI       = "api"                  // serves the HTTP API
	RoleWebhooks  = "webhooks"             // delivers replies to webhooks
)

// StopMargin is the longest time that a worker takes to stop after shutdown_grace: to hand back turns, and
// to close MCP servers, the API, telemetry and the database. Service managers must kill it no sooner.
const StopMargin = 35 * time.Second

// A Config holds the settings of one process. Create it with Default or Load.
type Config struct {
	File string // path of the config file; empty: none
	// Missing lists the secrets that could not be read or used, in the order of the file. Only
	// with LoadOptions.WithoutSecrets.
	Missing []MissingSecret

	DatabaseURL    DatabaseURL // not set: a private Postgres in DataDir
	DataDir        string      // relative paths start at the working directory
	MigrateOnStart bool
	DBPoolSize     int

	AgentsDir    string
	DefaultModel string // "provider/model" for agents that set none
	ReplySink    string // policy.ReplyAllow, ReplyWithhold or ReplyAsk, of agents that set none
	Approve      string // a rule for all calls of all agents, in addition to others; empty: none
	// ExtractionModel searches stored tool results for agents that set none.
	// Empty: the agent's models.
	ExtractionModel string
	Providers       map[string]Provider // by name, without the built-in demo
	Models          map[string]Model    // by "provider/model"
	Tools           map[string]Tool     // programs, by name
	Webhooks        map[string]Webhook  // by name
	MCPServers      map[string]MCPServer
	// MCPLoginKey encrypts stored logins to MCP servers: MCPLoginKeyBytes bytes in base64.
	// Not set: nobody can log in.
	MCPLoginKey Secret

	Roles       []string // sorted, each once
	WorkerSlots int      // maximum number of concurrent turns
	// DetachedSlots is the maximum number of concurrent detached calls of each tool; 0: none.
	DetachedSlots int
	Bounds        turnkeeper.Bounds // bounds without an agent's overrides; see BoundsFor

	TakeoverAfter        time.Duration // silence after which a worker is lost; 0: only when its lease ends
	PollInterval         time.Duration
	MaxDispatchesPerTick int
	ShutdownGrace        time.Duration // 0: turns are handed back at once
	Retention            retention.Policy
	MaxMessageBytes      int
	MaxResultMemory      int // MiB
	MaxSenderPriority    int // highest priority of senders who may not operate

	Listen          string   // host:port of the HTTP API; empty: off
	AllowedHosts    []string // allowed host names beside its address and localhost
	HTTPConnections int      // maximum number of connections to the API
	FourEyes        bool     // the token that sent a message must not answer what its turn asks
	HTTPRate        int      // requests per second and token, or of all requests without a token
	HTTPStreams     int      // streams of events at once and token, or of all requests without a token

	OTLPEndpoint     string // base URL of an OTLP receiver; empty: off
	MetricsListen    string // host:port of a listener for metrics only; empty: none
	TelemetryContent bool   // add requests and answers to spans

	LogLevel  string // debug, info, warn, error
	LogFormat string // console, json

	fileSecrets []string // secrets of mappings in the config file, and of variables that define providers
	otlpSecrets []string // secrets of OpenTelemetry's variables
	learnt      *redact.Register

	lower   turnkeeper.Bounds // bounds without flags
	flagged []func(*Config)   // apply the flags
}

// BoundsFor returns the bounds of an agent's turns: the process's, overridden by the agent's, overridden
// by flags. *agentdef.Definition implements agent.
func (c *Config) BoundsFor(agent interface {
	Bounds(turnkeeper.Bounds) turnkeeper.Bounds
}) turnkeeper.Bounds {
	merged := Config{Bounds: agent.Bounds(c.lower)}
	for _, apply := range c.flagged {
		apply(&merged)
	}
	return merged.Bounds
}

// A Model describes a model.
type Model struct {
	ContextWindow int `yaml:"context_window" in:"1024 to 100000000"` // tokens; 0: unknown
}

// Default returns the default settings.
func Default() *Config {
	return &Config{
		lower:                bounds.Default(),
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
		Bounds:               bounds.Default(),
		TakeoverAfter:        15 * time.Second,
		PollInterval:         5 * time.Second,
		MaxDispatchesPerTick: 100,
		ShutdownGrace:        25 * time.Second,
		MaxMessageBytes:      64 << 10,
		MaxResultMemory:      256,
		Listen:               "127.0.0.1:8722",
		HTTPConnections:      2000,
		HTTPRate:             1000,
		HTTPStreams:          500,
		LogLevel:             "info",
		LogFormat:            "console",
		ReplySink:            policy.ReplyAllow,
		Retention:            retention.Policy{Outputs: retention.ByDatabase, Events: retention.ByDatabase},
	}
}

// A MissingSecret is a secret of the settings that cannot be read or used.
type MissingSecret struct {
	Setting string // for example "providers.acme.api_key_env"
	Problem string // a sentence that begins with Setting
}

// Lacks returns the first missing secret whose setting begins with prefix, for example "providers.acme.".
// ok is false if there is none.
func (c *Config) Lacks(prefix string) (secret MissingSecret, ok bool) {
	for _, m := range c.Missing {
		if strings.HasPrefix(m.Setting, prefix) {
			return m, true
		}
	}
	return MissingSecret{}, false
}

// HasRole reports whether the process has the role.
func (c *Config) HasRole(role string) bool { return slices.Contains(c.Roles, role) }

// Secrets returns every secret in the settings, as written there and decoded, for a masker: sorted,
// without duplicates and empty texts.
func (c *Config) Secrets() []string {
	secrets := slices.Concat(c.DatabaseURL.secrets(), c.fileSecrets, c.otlpSecrets)
	slices.Sort(secrets)
	secrets = slices.Compact(secrets)
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

// Masker returns a masker of the settings' secrets and of those passed to Learn before or after.
func (c *Config) Masker() *redact.Masker { return redact.NewWith(c.Secrets(), c.learnt) }

// Learn makes maskers mask a secret that is not in the settings, for example a received token.
func (c *Config) Learn(secret string) { c.learnt.Add(secret) }
