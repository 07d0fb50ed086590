// Package agentdef reads agents: files agents/NAME.md with YAML front matter and a system
// prompt. Parsing is strict: an unknown key, a wrong type or an invalid value is an error that
// names file and line, and a file with an error gives no Definition.
//
// The package reads the files it is given and does no other I/O. Only it and internal/config
// import YAML.
package agentdef

import (
	"cmp"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/survival"
)

// A Definition is one agent. It is immutable once parsed.
type Definition struct {
	Name        string // of the file, without .md
	Path        string // of the file; empty if parsed from a turn's record
	Hash        string // hex SHA-256 of Source
	Source      []byte // the whole file
	Prompt      string // the system prompt
	Description string `yaml:"description"`

	Model          string   `yaml:"model" check:"model"`                      // "provider/model"
	FallbackModels []string `yaml:"fallback_models" once:"yes" check:"model"` // tried in order after Model

	// "provider/model" that searches stored results; empty: that of the settings, else those above
	ExtractionModel string `yaml:"extraction_model" check:"model"`

	LanePerConversation bool `yaml:"lane" of:"agent, conversation"`
	// one set of notes for all users and conversations
	SharedNotes bool       `yaml:"notes" of:"user, agent"`
	Schedules   []Schedule `yaml:"schedule" as:"schedules" type:"mapping, or a list of them"` // one or a list
	// an answer of a scheduled turn that is not sent; empty: all are sent
	QuietReply string      `yaml:"quiet_reply" check:"quiet reply"`
	Replies    Replies     // of turns in which the model gave no answer
	Tools      []string    `yaml:"tools" once:"yes" check:"tool"`               // names
	SubAgents  []string    `yaml:"sub_agents" once:"yes" check:"sub-agent"`     // agents that it may spawn
	MCPServers []MCPServer `yaml:"mcp_servers" as:"mcp servers" type:"mapping"` // in the order of the file
	// folder for the file tools; empty: they are refused
	Root string `yaml:"root" as:"root"`
	// hosts http_get may reach on private addresses
	AllowPrivateHosts []string `yaml:"allow_private_hosts" as:"hosts"`

	Overrides bounds.Overrides // of the process's bounds

	// rules by tool; policy.AllTools: of all tools
	Approve     map[string]string `yaml:"approve" names:"rule tool" check:"rule"`
	WhileAsking string            `yaml:"while_asking" of:"hold, go_on"` // empty: hold
	AskTimeout  time.Duration     `yaml:"ask_timeout" in:"1s to 8760h"`  // 0: asks.DefaultTimeout
	// who may answer; nil: anybody who may answer asks
	Audience []string `yaml:"ask_audience" once:"yes" check:"audience"`
	// of messages that do not come from other agents
	InboxLabels []string `yaml:"inbox_labels" once:"yes" check:"label"`
	Durability  string   `yaml:"durability" of:"barrier, step"`        // empty: barrier
	OnUnknown   string   `yaml:"on_unknown" of:"degrade, ask"`         // empty: degrade
	ReplySink   string   `yaml:"reply_sink" of:"allow, withhold, ask"` // empty: the setting reply_sink

	// turns at once; 0: see turnkeeper.AgentRegistration
	MaxRunning int `yaml:"max_running" in:"0 to 1000"`
	// reserved for each answer; 0: DefaultOutputTokens
	MaxOutputTokens int `yaml:"max_output_tokens" in:"0 to 1000000"`
	// tokens the model takes; 0: by the model's name, else 32768
	ContextWindow int      `yaml:"context_window" in:"0, or 1024 to 100000000"`
	Temperature   *float64 `yaml:"temperature" in:"0 to 2"` // nil: the provider's default
	Budget        Budget   `yaml:"budget"`
	Levels        Levels   `yaml:"levels"` // what happens when little is left of the budget of the day
}

// Levels hold what happens at an agent's survival levels.
type Levels struct {
	Low      LevelEffect `yaml:"low"`
	Critical LevelEffect `yaml:"critical"`
}

// A LevelEffect is what happens at a survival level. The zero value changes nothing.
type LevelEffect struct {
	// "provider/model", asked in place of Definition.Model; empty: no other
	Model       string `yaml:"model" check:"model"`
	Schedules   *bool  `yaml:"schedules"` // whether due slots run; nil: they do
	MinPriority *int   `yaml:"min_priority" in:"-1000 to 1000"`
}

// Rules returns what happens at the agent's survival levels. At a level whose model the file does not name, the chain
// of models is that of Chain.
func (d *Definition) Rules(defaultModel string) survival.Rules {
	rules := survival.Rules{}
	for level, e := range map[survival.Level]LevelEffect{survival.Low: d.Levels.Low,
		survival.Critical: d.Levels.Critical} {
		if e == (LevelEffect{}) {
			continue
		}
		effect := survival.Effect{NoSchedules: e.Schedules != nil && !*e.Schedules, MinPriority: e.MinPriority}
		if e.Model != "" {
			cheaper := Definition{Model: e.Model, FallbackModels: d.FallbackModels}
			effect.Models = cheaper.Chain(defaultModel)
		}
		rules[level] = effect
	}
	return rules
}

// ChainAt returns the models of the agent's turns at a survival level, in the order they are asked.
func (d *Definition) ChainAt(level survival.Level, defaultModel string) []string {
	if names := d.Rules(defaultModel)[level].Models; names != nil {
		return names
	}
	return d.Chain(defaultModel)
}

// An MCPServer names the tools that an agent has of an MCP server.
type MCPServer struct {
	Name  string   // of the server in the settings
	Tools []string // by the server's own names
}

// A Budget holds the limits of an agent's model calls. 0: unlimited.
type Budget struct {
	TurnTokens int64 `yaml:"turn_tokens" in:"0 to 1000000000000"`
	TurnCalls  int64 `yaml:"turn_calls" in:"0 to 1000000000000"`
	DayTokens  int64 `yaml:"day_tokens" in:"0 to 1000000000000"` // a day of UTC
	DayCalls   int64 `yaml:"day_calls" in:"0 to 1000000000000"`
	TreeTokens int64 `yaml:"tree_tokens" in:"0 to 1000000000000"` // of a turn and all sub-agents below it
	TreeCalls  int64 `yaml:"tree_calls" in:"0 to 1000000000000"`

	OnLimit string `yaml:"on_limit" of:"end, ask"` // empty: end
}

// AsksOnLimit reports whether a turn asks a person before it ends because its budget is used up.
func (b Budget) AsksOnLimit() bool { return b.OnLimit == "ask" }

// Settles reports whether a person is asked about calls of unknown outcome.
func (d *Definition) Settles() bool { return d.OnUnknown == "ask" }

// WritesBehind reports whether answers, and results of calls of effect none, may be written while a turn goes on.
func (d *Definition) WritesBehind() bool { return d.Durability != "step" }

// Terms returns the settings of the agent's asks.
func (d *Definition) Terms() asks.Terms {
	return asks.Terms{Audience: d.Audience, Hold: d.WhileAsking != "go_on", Timeout: cmp.Or(d.AskTimeout,
		asks.DefaultTimeout)}
}

// DefaultOutputTokens is the default of Definition.MaxOutputTokens.
const DefaultOutputTokens = 4096

// OutputTokens returns the number of tokens reserved for each answer.
func (d *Definition) OutputTokens() int { return cmp.Or(d.MaxOutputTokens, DefaultOutputTokens) }

// WithAnswerLimit returns the definition with at most that many tokens for each answer; 0: the definition as it is.
func (d *Definition) WithAnswerLimit(tokens int) *Definition {
	if d == nil || tokens == 0 || tokens >= d.OutputTokens() {
		return d
	}
	limited := *d
	limited.MaxOutputTokens = tokens
	return &limited
}

// Chain returns the models of the agent's turns in the order they are asked, without
// duplicates.
func (d *Definition) Chain(defaultModel string) (names []string) {
	for _, name := range append([]string{cmp.Or(d.Model, defaultModel)}, d.FallbackModels...) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Set reports whether a limit is set.
func (b Budget) Set() bool { return b != Budget{} }

// A Schedule starts turns of its agent.
type Schedule struct {
	// unique in the agent; default "default"
	Name string `yaml:"name" check:"schedule name"`
	// five fields, or @every / @hourly and the like
	Cron string `yaml:"cron" as:"cron" needs:": say when the agent runs, such as cron: \"0 9 * * *\""`
	// IANA name; default UTC
	TimeZone string `yaml:"time_zone" check:"time zone"`
	// default: "main"
	Conversation string `yaml:"conversation" check:"conversation"`
	// of each run; default: "Scheduled run of NAME."
	Message string  `yaml:"message" check:"message"`
	History History `yaml:"history" of:"none, last, all"`
}

// A History is the part of its conversation that a run of a schedule sees. Empty means
// HistoryLast.
type History string

// The histories.
const (
	HistoryNone History = "none" // nothing
	HistoryLast History = "last" // the previous run of the schedule
	HistoryAll  History = "all"  // the whole conversation, as for a message
)

// Bounds returns base with the definition's overrides.
func (d *Definition) Bounds(base turnkeeper.Bounds) turnkeeper.Bounds {
	return d.Overrides.Over(base)
}
