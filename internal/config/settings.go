package config

import (
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/retention"
	"turnkeeper/policy"
)

// DefaultFile is the config file read if no other is named; it need not exist.
const DefaultFile = "turnkeeper.yaml"

const (
	day    = 24 * time.Hour
	month  = 30 * day
	moment = time.Millisecond
)

// Settings returns the table of settings, in the order of the reference. It does not include mappings,
// which only the config file can have: see ProviderKeys and its neighbours.
func Settings() []Setting {
	list := []Setting{
		{
			Name: "config", AlsoEnv: "", Group: "Files", Type: "text", Default: DefaultFile + ", if it exists",
			Doc: "The config file. It must exist if this is set.", onlyAt: true,
			set: func(*Config, string) error { return nil },
			get: func(c *Config) string { return c.File },
		},
		text(func(c *Config) *string { return &c.AgentsDir }, notEmpty, Setting{
			Name: "agents_dir", Group: "Files", Doc: "The folder of agent definitions."}),
		text(func(c *Config) *string { return &c.DataDir }, notEmpty, Setting{
			Name: "data_dir", Group: "Files", Doc: "The folder of the private Postgres."}),

		{
			Name: "database_url", AlsoEnv: "DATABASE_URL", Group: "Database", Type: "text", secret: true,
			Bounds: "postgres://USER:PASSWORD@HOST:PORT/DATABASE, or pairs host=... user=...",
			Zero:   "a private Postgres in data_dir",
			Doc:    "The Postgres database. Its password is masked in all output.",
			set: func(c *Config, text string) (err error) {
				value, err := NewDatabaseURL(text)
				if err == nil {
					c.DatabaseURL = value
				}
				return err
			},
			get: func(c *Config) string { return c.DatabaseURL.String() },
		},
		number(func(c *Config) *int { return &c.DBPoolSize }, 2, 1000, Setting{
			Name: "db_pool_size", Group: "Database", Unit: "connections",
			Doc: "Size of the process's main connection pool."}),
		boolean(func(c *Config) *bool { return &c.MigrateOnStart }, Setting{
			Name: "migrate_on_start", Group: "Database",
			Doc: "Whether a worker migrates the database schema when it starts."}),

		text(func(c *Config) *string { return &c.DefaultModel }, checkModel, Setting{
			Name: "default_model", Group: "Models", Bounds: "PROVIDER/MODEL",
			Doc: "The model of agents that set none. demo/script answers by a script, without a model."}),
		text(func(c *Config) *string { return &c.ExtractionModel }, checkModelOrNone, Setting{
			Name: "extraction_model", Group: "Models", Bounds: "PROVIDER/MODEL",
			Zero: "the agent's model and fallbacks",
			Doc:  "The model that searches stored tool results, for agents that set none."}),

		text(func(c *Config) *string { return &c.Approve }, func(string) error { return nil }, Setting{
			Name: "approve", Group: "Process", Bounds: "always, never or a rule in CEL", Zero: "no rule",
			Doc: "The calls of all agents that a person must approve before they run. It applies in addition to the rules of agents and tools. See docs/asks.md."}),

		choice(func(c *Config) *string { return &c.ReplySink }, policy.ReplySinks, Setting{
			Name: "reply_sink", Group: "Process",
			Doc: "What happens to a reply that may hold content with the label private, of agents that do not set it. allow: it is sent. withhold: a text is sent in its place. ask: a person approves it first. See docs/asks.md."}),

		words(func(c *Config) *[]string {
			return &c.Roles
		}, []string{RoleAPI, RoleScheduler, RoleWebhooks, RoleWorker}, Setting{
			Name: "roles", Group: "Process",
			Doc: "Roles of the process: worker runs turns, scheduler dispatches them, api serves HTTP requests, webhooks delivers replies to endpoints."}),
		number(func(c *Config) *int { return &c.WorkerSlots }, 1, 1000, Setting{
			Name: "worker_slots", Group: "Process", Unit: "turns",
			Doc: "Maximum number of concurrent turns in the process."}),
		number(func(c *Config) *int { return &c.DetachedSlots }, 0, 1000, Setting{
			Name: "detached_slots", Group: "Process", Unit: "calls", Zero: "other workers run them",
			Doc: "Maximum number of concurrent detached calls of each tool in the process, in addition to its turns."}),
		duration(func(c *Config) *time.Duration { return &c.ShutdownGrace }, 0, time.Hour, Setting{
			Name: "shutdown_grace", Group: "Process", Zero: "handed back at once",
			Doc: "Time that running turns have to finish after the process was told to stop; then they are handed back."}),
		duration(func(c *Config) *time.Duration { return &c.TakeoverAfter }, 100*moment, day, Setting{
			Name: "takeover_after", Group: "Process", Zero: "only when its leases end",
			Doc: "Time without a heartbeat after which a worker counts as lost and others take over its turns. A worker sends five heartbeats in this time."}),
		duration(func(c *Config) *time.Duration { return &c.PollInterval }, 10*moment, time.Hour, Setting{
			Name: "poll_interval", Group: "Process",
			Doc: "Interval of polling for work, in case a notification was lost."}),
		number(func(c *Config) *int { return &c.MaxDispatchesPerTick }, 1, 10000, Setting{
			Name: "max_dispatches_per_tick", Group: "Process", Unit: "turns",
			Doc: "Maximum number of turns that one tick of the scheduler dispatches; the next tick follows at once."}),
		number(func(c *Config) *int { return &c.MaxMessageBytes }, 1, turnkeeper.LargestMessage, Setting{
			Name: "max_message_bytes", Group: "Process", Unit: "bytes", Doc: "Maximum length of a message."}),
		number(func(c *Config) *int { return &c.MaxResultMemory }, 192, 1<<20, Setting{
			Name: "max_result_memory", Group: "Process", Unit: "MiB",
			Doc: "Maximum memory that the results of tools take together while they are read, decoded, cleaned and stored. A call whose result finds no room waits, within its timeout. The first 64 KiB of each result are not counted."}),
		number(func(c *Config) *int { return &c.MaxSenderPriority }, 0, turnkeeper.MaxPriority, Setting{
			Name: "max_sender_priority", Group: "Process", Unit: "points", Zero: "they may only lower it",
			Doc: "Highest priority of a message whose sender may not operate: a token without the scope operate, or a database role without the rights of the workers' role."}),
		choice(func(c *Config) *string { return &c.LogLevel }, []string{"debug", "info", "warn", "error"}, Setting{
			Name: "log_level", Group: "Process", Doc: "Minimum level of log messages."}),
		choice(func(c *Config) *string { return &c.LogFormat }, []string{"console", "json"}, Setting{
			Name: "log_format", Group: "Process", Doc: "Format of log messages: for people, or for programs."}),
	}
	list = slices.Concat(list, retentionSettings(), httpSettings(), telemetrySettings(), boundSettings())
	for i := range list {
		s := &list[i]
		s.Env = envPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, ".", "_"))
		s.Flag = strings.NewReplacer("_", "-", ".", "-").Replace(s.Name)
		if s.Default == "" {
			s.Default = s.get(Default())
		}
	}
	return list
}

// retentionSettings returns the settings of the classes of retention.
func retentionSettings() []Setting {
	const group, byDatabase, forEver = "Retention", "720h in a new database, else 0", "kept for ever"
	setting := func(field func(*retention.Policy) *time.Duration, s Setting) Setting {
		s.Group, s.Zero = group, forEver
		s = duration(func(c *Config) *time.Duration { return field(&c.Retention) }, time.Hour, 36500*day, s)
		written := s.get
		s.get = func(c *Config) string {
			if *field(&c.Retention) == retention.ByDatabase {
				return ""
			}
			return written(c)
		}
		return s
	}
	return []Setting{
		setting(func(p *retention.Policy) *time.Duration { return &p.Messages }, Setting{
			Name: "retention.messages",
			Doc:  "How long a message is kept after it was closed, with its turns, reply, outputs, events and other data."}),
		setting(func(p *retention.Policy) *time.Duration { return &p.Outputs }, Setting{
			Name: "retention.outputs", Default: byDatabase,
			Doc: "How long the stored results of tools are kept after their message was closed. Then their ids are answered by expired; what the model was shown of them stays."}),
		setting(func(p *retention.Policy) *time.Duration { return &p.Events }, Setting{
			Name: "retention.events", Default: byDatabase,
			Doc: "How long the events of a turn are kept after its message was closed. Then only events_expired and the last event are left."}),
		setting(func(p *retention.Policy) *time.Duration { return &p.Leases }, Setting{
			Name: "retention.leases",
			Doc:  "How long the log of a turn's leases is kept after its message was closed, and how often turns have failed in a lane that nothing uses."}),
	}
}

// httpSettings returns the settings of the HTTP API.
func httpSettings() []Setting {
	return []Setting{
		text(func(c *Config) *string { return &c.Listen }, checkListen, Setting{
			Name: "listen", Group: "HTTP API", Bounds: "HOST:PORT",
			Doc: "Address of the HTTP API. If it is not a loopback address, or allowed_hosts is set, every request needs a token. Empty: the API is off."}),
		hostNames(func(c *Config) *[]string { return &c.AllowedHosts }, Setting{
			Name: "allowed_hosts", Group: "HTTP API", Zero: "only those",
			Doc: "Host names allowed in requests to the API, in addition to IP addresses, localhost and the host of listen. Must be set behind a proxy: then every request needs a token."}),
		boolean(func(c *Config) *bool { return &c.FourEyes }, Setting{
			Name: "four_eyes", Group: "HTTP API",
			Doc: "Whether an answer over HTTP or on the page needs a token, and not the one that sent the message that led to the ask."}),
		number(func(c *Config) *int { return &c.HTTPConnections }, 10, 100_000, Setting{
			Name: "http_connections", Group: "HTTP API", Unit: "connections",
			Doc: "Maximum number of connections to the API, and of requests in progress. At the limit a new connection replaces the one idle longest, and a new request is answered 503, except for /healthz and /readyz."}),
		number(func(c *Config) *int { return &c.HTTPRate }, 1, 100_000, Setting{
			Name: "http_rate", Group: "HTTP API", Unit: "requests",
			Doc: "Maximum number of requests per second for each token, and for all requests without a token together."}),
		number(func(c *Config) *int { return &c.HTTPStreams }, 1, 100_000, Setting{
			Name: "http_streams", Group: "HTTP API", Unit: "streams",
			Doc: "Maximum number of streams of events open at once for each token, and for all requests without a token together, in each process. A further one is answered 429."}),
	}
}

// telemetrySettings returns the settings of traces and metrics.
func telemetrySettings() []Setting {
	return []Setting{
		text(func(c *Config) *string { return &c.OTLPEndpoint }, anything, Setting{
			Name: "otlp_endpoint", AlsoEnv: "OTEL_EXPORTER_OTLP_ENDPOINT", Group: "Telemetry",
			Bounds: "a URL such as http://localhost:4318", secret: true,
			Zero: "nothing is sent, unless OpenTelemetry's variables for traces or metrics set an endpoint",
			Doc:  "Endpoint for traces and metrics, by OTLP over HTTP. A worker checks it when it starts."}),
		text(func(c *Config) *string { return &c.MetricsListen }, checkListen, Setting{
			Name: "metrics_listen", Group: "Telemetry", Bounds: "HOST:PORT", Zero: "only the HTTP API serves metrics",
			Doc: "Address at which a worker serves /metrics for Prometheus without a token. For processes without the role api."}),
		boolean(func(c *Config) *bool { return &c.TelemetryContent }, Setting{
			Name: "telemetry_content", Group: "Telemetry",
			Doc: "Whether spans have the requests and answers of models and tools, with secrets masked, each cut to 4,000 characters."}),
	}
}

// boundSettings returns the settings of the bounds of a turn.
func boundSettings() []Setting {
	var list []Setting
	for _, row := range bounds.All() {
		s := Setting{Name: row.Name, Group: row.Group, Unit: row.Unit, Zero: row.Zero, Doc: row.Doc}
		low, high := row.Low, row.High
		switch row.Field(&turnkeeper.Bounds{}).(type) {
		case *int:
			s = number(func(c *Config) *int { return row.Field(&c.Bounds).(*int) }, int(low), int(high), s)
		case *time.Duration:
			field := func(c *Config) *time.Duration { return row.Field(&c.Bounds).(*time.Duration) }
			s = duration(field, time.Duration(low), time.Duration(high), s)
		case *bool:
			s = boolean(func(c *Config) *bool { return row.Field(&c.Bounds).(*bool) }, s)
		}
		list = append(list, s)
	}
	return list
}
