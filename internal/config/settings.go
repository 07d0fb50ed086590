package config

import (
	"slices"
	"strings"
	"time"
)

// DefaultFile is the config file that is read when it exists and no other is
// named.
const DefaultFile = "turnkeeper.yaml"

const (
	day    = 24 * time.Hour
	month  = 30 * day
	moment = time.Millisecond
)

// Settings is the table, in the order of the reference. The settings
// "providers" and "models" are mappings, stand only in the config file, and
// are not in it: see ProviderKeys and ModelKeys.
func Settings() []Setting {
	list := []Setting{
		{
			Name: "config", AlsoEnv: "", Group: "Files", Type: "text", Default: DefaultFile + ", when it exists",
			Doc: "The config file. One that is named must exist.", onlyAt: true,
			set: func(*Config, string) error { return nil },
			get: func(c *Config) string { return c.File },
		},
		text(func(c *Config) *string { return &c.AgentsDir }, notEmpty, Setting{
			Name: "agents_dir", Group: "Files", Doc: "The folder of the agents' files."}),
		text(func(c *Config) *string { return &c.DataDir }, notEmpty, Setting{
			Name: "data_dir", Group: "Files", Doc: "The folder of the private Postgres."}),

		{
			Name: "database_url", AlsoEnv: "DATABASE_URL", Group: "Database", Type: "text", secret: true,
			Bounds: "postgres://USER:PASSWORD@HOST:PORT/DATABASE, or words host=... user=...",
			Zero:   "a private Postgres in data_dir",
			Doc:    "The Postgres to use. Its password is masked wherever it is shown.",
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
			Name: "db_pool_size", Group: "Database", Unit: "connections", Doc: "Connections for the process's ordinary work."}),
		boolean(func(c *Config) *bool { return &c.MigrateOnStart }, Setting{
			Name: "migrate_on_start", Group: "Database", Doc: "Whether a worker brings the database's tables up to date when it starts."}),

		text(func(c *Config) *string { return &c.DefaultModel }, checkModel, Setting{
			Name: "default_model", Group: "Models", Bounds: "PROVIDER/MODEL", Doc: "The model of agents that name none. demo/script is a script, and says so."}),
		text(func(c *Config) *string { return &c.ExtractionModel }, checkModelOrNone, Setting{
			Name: "extraction_model", Group: "Models", Bounds: "PROVIDER/MODEL", Zero: "the model and fallbacks of the agent", Doc: "The model that searches stored tool results, for agents that name none."}),

		words(func(c *Config) *[]string { return &c.Roles }, []string{RoleAPI, RoleScheduler, RoleWebhooks, RoleWorker}, Setting{
			Name: "roles", Group: "Process", Doc: "What the process does: the worker runs turns, the scheduler hands them out, the api answers HTTP requests, webhooks pushes replies to endpoints."}),
		number(func(c *Config) *int { return &c.WorkerSlots }, 1, 1000, Setting{
			Name: "worker_slots", Group: "Process", Unit: "turns", Doc: "Turns that the process runs at the same time."}),
		number(func(c *Config) *int { return &c.DetachedSlots }, 0, 1000, Setting{
			Name: "detached_slots", Group: "Process", Unit: "calls", Zero: "they run on other workers", Doc: "Detached calls of each tool that the process runs at the same time, beside its turns."}),
		duration(func(c *Config) *time.Duration { return &c.ShutdownGrace }, 0, time.Hour, Setting{
			Name: "shutdown_grace", Group: "Process", Zero: "they are handed back at once", Doc: "How long running turns may finish after the process was told to stop."}),
		duration(func(c *Config) *time.Duration { return &c.Retention }, time.Hour, 36500*day, Setting{
			Name: "retention", Group: "Process", Zero: "they stay until somebody purges them", Doc: "Age after which closed messages are removed for good, with all that belongs to them, by a look each hour."}),
		duration(func(c *Config) *time.Duration { return &c.TakeoverAfter }, 100*moment, day, Setting{
			Name: "takeover_after", Group: "Process", Zero: "only the end of its lease tells", Doc: "Silence after which a worker counts as lost and its turns go to others. It says that it lives five times within."}),
		duration(func(c *Config) *time.Duration { return &c.PollInterval }, 10*moment, time.Hour, Setting{
			Name: "poll_interval", Group: "Process", Doc: "How often to look for work that no notification told of."}),
		number(func(c *Config) *int { return &c.MaxDispatchesPerTick }, 1, 10000, Setting{
			Name: "max_dispatches_per_tick", Group: "Process", Unit: "turns", Doc: "Turns that one pass of the scheduler hands out, before it looks again."}),
		number(func(c *Config) *int { return &c.MaxMessageBytes }, 1, 16<<20, Setting{
			Name: "max_message_bytes", Group: "Process", Unit: "bytes", Doc: "The longest message that is accepted."}),
		choice(func(c *Config) *string { return &c.LogLevel }, []string{"debug", "info", "warn", "error"}, Setting{
			Name: "log_level", Group: "Process", Doc: "The least important log lines that are written."}),
		choice(func(c *Config) *string { return &c.LogFormat }, []string{"console", "json"}, Setting{
			Name: "log_format", Group: "Process", Doc: "Log lines for people, or for programs."}),

		text(func(c *Config) *string { return &c.Listen }, checkListen, Setting{
			Name: "listen", Group: "HTTP API", Bounds: "HOST:PORT", Doc: "Where the HTTP API listens. On an address that other machines can reach, and with allowed_hosts, every request needs a token. Empty: the API is off."}),
		hostNames(func(c *Config) *[]string { return &c.AllowedHosts }, Setting{
			Name: "allowed_hosts", Group: "HTTP API", Doc: "Names by which the API may be called; an address, localhost and what listen names are always right. Behind a proxy it must be set: then every request needs a token."}),
		number(func(c *Config) *int { return &c.HTTPConnections }, 10, 100_000, Setting{
			Name: "http_connections", Group: "HTTP API", Unit: "connections", Doc: "Connections to the API at the same time, and requests in progress. A further connection takes the place of the one that has been idle for longest. A further request is answered 503, but for /healthz and /readyz."}),
		number(func(c *Config) *int { return &c.HTTPRate }, 1, 100_000, Setting{
			Name: "http_rate", Group: "HTTP API", Unit: "requests", Doc: "Requests a second of one token, or of all who have none."}),
	}
	list = slices.Concat(list, telemetrySettings(), boundSettings())
	for i := range list {
		s := &list[i]
		s.Env = envPrefix + strings.ToUpper(s.Name)
		s.Flag = strings.ReplaceAll(s.Name, "_", "-")
		if s.Default == "" {
			s.Default = s.get(Default())
		}
	}
	return list
}

// telemetrySettings are those of traces and metrics.
func telemetrySettings() []Setting {
	return []Setting{
		text(func(c *Config) *string { return &c.OTLPEndpoint }, anything, Setting{
			Name: "otlp_endpoint", AlsoEnv: "OTEL_EXPORTER_OTLP_ENDPOINT", Group: "Telemetry", Bounds: "a URL such as http://localhost:4318", secret: true,
			Zero: "nothing is sent, unless OpenTelemetry's variables for single signals say where", Doc: "Where traces and metrics are sent, by OTLP over HTTP. A worker checks it when it starts."}),
		text(func(c *Config) *string { return &c.MetricsListen }, checkListen, Setting{
			Name: "metrics_listen", Group: "Telemetry", Bounds: "HOST:PORT", Zero: "only the HTTP API has them",
			Doc: "Where a worker has its metrics for Prometheus, at /metrics, for whoever can reach it: no token is asked for. For processes without the role api."}),
		boolean(func(c *Config) *bool { return &c.TelemetryContent }, Setting{
			Name: "telemetry_content", Group: "Telemetry", Doc: "Whether spans hold what models and tools are asked and what they answer, with secrets masked and cut to 4,000 characters each."}),
	}
}

// boundSettings are those of turnkeeper.Bounds.
func boundSettings() []Setting {
	const turn, agents, lease, repeats = "Bounds of a turn", "Sub-agents", "Leases", "Repeats and attempts"
	return []Setting{
		number(func(c *Config) *int { return &c.Bounds.MaxRounds }, 1, 20, Setting{
			Name: "max_rounds", Group: turn, Unit: "model calls", Doc: "Model calls in a turn, the first included; rounds of nothing but paging are not counted."}),
		number(func(c *Config) *int { return &c.Bounds.RoundCeiling }, 1, 20, Setting{
			Name: "round_ceiling", Group: turn, Unit: "model calls", Doc: "Model calls in a turn, paging rounds included; not less than max_rounds."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.MaxDuration }, moment, day, Setting{
			Name: "max_duration", Group: turn, Doc: "Wall time of a turn; with lease_margin less than lease_ttl."}),
		number(func(c *Config) *int { return &c.Bounds.MaxToolCalls }, 0, 1000, Setting{
			Name: "max_tool_calls", Group: turn, Unit: "calls", Zero: "no tool runs", Doc: "Tool calls run in a turn, paging calls not counted."}),
		number(func(c *Config) *int { return &c.Bounds.MaxPagingCalls }, 0, 1000, Setting{
			Name: "max_paging_calls", Group: turn, Unit: "calls", Zero: "none runs", Doc: "Calls in a turn that read more of a stored output."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.ToolTimeout }, moment, day, Setting{
			Name: "tool_timeout", Group: turn, Doc: "Time for one tool call."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.ModelTimeout }, 0, day, Setting{
			Name: "model_timeout", Group: turn, Zero: "what is left of the turn", Doc: "Time for one model call of a provider that does not stream (`stream: false`). A call that streams has no such limit: see model_idle_timeout."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.ModelIdle }, moment, day, Setting{
			Name: "model_idle_timeout", Group: turn, Doc: "Time that a model call may pass without a byte."}),
		boolean(func(c *Config) *bool { return &c.Bounds.Continuation }, Setting{
			Name: "continuation", Group: turn, Doc: "Whether the model is called again with the tools' results. false: one round, its tools run, and the turn ends."}),
		number(func(c *Config) *int { return &c.Bounds.MaxToolResultChars }, 1, 1_000_000, Setting{
			Name: "max_tool_result_chars", Group: turn, Unit: "characters", Doc: "How much of a tool's result the model is shown at once."}),
		boolean(func(c *Config) *bool { return &c.Bounds.Paging }, Setting{
			Name: "paging", Group: turn, Doc: "Whether the model can read on where a tool's result was cut, with get_continuation and get_tool_output."}),
		boolean(func(c *Config) *bool { return &c.Bounds.Async }, Setting{
			Name: "async", Group: turn, Doc: "Whether very long results are given as handles, and slow calls go on in the background."}),
		number(func(c *Config) *int { return &c.Bounds.AsyncTokenThreshold }, 0, 1_000_000, Setting{
			Name: "async_token_threshold", Group: turn, Unit: "tokens", Zero: "every result that is not empty", Doc: "Estimated tokens above which a result is given as a handle only."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.AsyncTimeout }, 0, day, Setting{
			Name: "async_timeout", Group: turn, Zero: "none does", Doc: "After how long a call that still runs goes to the background."}),
		boolean(func(c *Config) *bool { return &c.Bounds.OutputHandles }, Setting{
			Name: "output_handles", Group: turn, Doc: "Whether a tool's string argument may be output:ID or output:ID[START:END], for which the tool gets the text of that result of the turn."}),
		boolean(func(c *Config) *bool { return &c.Bounds.Summarise }, Setting{
			Name: "summarise", Group: turn, Doc: "Whether earlier turns of a conversation that do not fit the context window are summarised, by a model call. false: they are left out."}),

		number(func(c *Config) *int { return &c.Bounds.MaxSubAgents }, 0, 1000, Setting{
			Name: "max_sub_agents", Group: agents, Unit: "agents", Zero: "none is spawned", Doc: "Sub-agents that one turn may spawn."}),
		number(func(c *Config) *int { return &c.Bounds.MaxSubAgentDepth }, 0, 20, Setting{
			Name: "max_sub_agent_depth", Group: agents, Unit: "turns", Zero: "none is spawned", Doc: "How deep a tree of sub-agents may grow below the first turn."}),
		number(func(c *Config) *int { return &c.Bounds.MaxTreeSubAgents }, 0, 10_000, Setting{
			Name: "max_tree_sub_agents", Group: agents, Unit: "agents", Zero: "none is spawned", Doc: "Sub-agents in a whole tree."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.SubAgentTimeout }, time.Second, day, Setting{
			Name: "sub_agent_timeout", Group: agents, Doc: "How long the reply of a sub-agent is waited for."}),

		duration(func(c *Config) *time.Duration { return &c.Bounds.LeaseTTL }, moment, 2*day, Setting{
			Name: "lease_ttl", Group: lease, Doc: "How long a worker has the right to run a turn."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.Margin }, 0, day, Setting{
			Name: "lease_margin", Group: lease, Zero: "no margin", Doc: "What must be left of a lease for safety."}),

		duration(func(c *Config) *time.Duration { return &c.Bounds.FreshnessWindow }, 0, month, Setting{
			Name: "freshness_window", Group: repeats, Zero: "off", Doc: "In turns of a schedule, a call of a tool with an effect is not run where an equal one succeeded this recently."}),
		number(func(c *Config) *int { return &c.Bounds.CooldownFailures }, 0, 20, Setting{
			Name: "cooldown_failures", Group: repeats, Unit: "failures", Zero: "off", Doc: "Equal failures, in turns of a schedule, of a call with an effect, or of a read that has a `freshness` of its own, after which it is not run for a while."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.CooldownWindow }, time.Second, month, Setting{
			Name: "cooldown_window", Group: repeats, Doc: "Within how long these failures count."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.Cooldown }, 0, month, Setting{
			Name: "cooldown", Group: repeats, Zero: "off", Doc: "For how long the call is then not run."}),
		number(func(c *Config) *int { return &c.Bounds.MaxAttempts }, 1, 100, Setting{
			Name: "max_attempts", Group: repeats, Unit: "turns", Doc: "Turns for one message that fail by what counts against it: answers that cannot be used, and the end of max_duration before any tool ran. A service that fails does not count: see give_up_after."}),
		duration(func(c *Config) *time.Duration { return &c.Bounds.GiveUpAfter }, 0, month, Setting{
			Name: "give_up_after", Group: repeats, Zero: "it fails at once", Doc: "How long a message waits for a model that cannot be reached, from its acceptance; then it fails with a reply."}),
		number(func(c *Config) *int { return &c.Bounds.MaxDispatches }, 1, 100, Setting{
			Name: "max_dispatches", Group: repeats, Unit: "workers", Doc: "Workers that a message may cost; then it is answered without being run again."}),
	}
}
