// Package agentdef reads agents: files agents/NAME.md with YAML front matter
// and a system prompt. Parsing is strict: an unknown key, a wrong type or an
// impossible value is an error that names file and line, and no Definition
// comes out of a file with an error.
//
// The package does no I/O beyond reading the files it is given, knows no
// database, and is the only importer of YAML beside internal/config.
package agentdef

import (
	"cmp"
	"slices"
	"time"

	"turnkeeper"
)

// A Definition is one agent. It is immutable once parsed.
type Definition struct {
	Name        string // of the file, without .md
	Path        string // where it was read; empty when parsed from a turn's record
	Hash        string // hex SHA-256 of Source
	Source      []byte // the whole file
	Prompt      string // the system prompt
	Description string

	Model          string   // "provider/model"
	FallbackModels []string // tried in order after Model

	ExtractionModel string // "provider/model" that searches stored results; empty: the setting's, else those above

	LanePerConversation bool        // `lane: conversation`
	Schedules           []Schedule  // `schedule:`, one or a list
	QuietReply          string      // the answer of a scheduled turn that is not sent; empty: all are
	Replies             Replies     // of turns without an answer of their own
	Tools               []string    // names; an agent has no others
	SubAgents           []string    // agents it may give work to
	MCPServers          []MCPServer // in the order of the file; an agent has no other tools of servers
	Root                string      // folder for the file tools; empty: they are refused
	AllowPrivateHosts   []string    // hosts http_get may reach on private addresses

	// Overrides of the process's bounds; nil: not set.
	MaxRounds           *int
	MaxDuration         *time.Duration
	MaxToolCalls        *int
	ToolTimeout         *time.Duration
	Continuation        *bool
	MaxToolResultChars  *int
	Paging              *bool
	Async               *bool
	AsyncTokenThreshold *int
	AsyncTimeout        *time.Duration
	OutputHandles       *bool
	FreshnessWindow     *time.Duration
	Summarise           *bool
	MaxSubAgents        *int
	MaxSubAgentDepth    *int
	MaxTreeSubAgents    *int
	SubAgentTimeout     *time.Duration
	GiveUpAfter         *time.Duration

	MaxOutputTokens int      // reserved for each answer; 0: DefaultOutputTokens
	ContextWindow   int      // tokens the model takes; 0: by the model's name, else 32768
	Temperature     *float64 // nil: the provider's default
	Budget          Budget
}

// An MCPServer is what an agent has of an MCP server of the settings.
type MCPServer struct {
	Name  string   // in the settings
	Tools []string // by the server's own names
}

// A Budget bounds what an agent's model calls may take. 0: no bound.
type Budget struct {
	TurnTokens int64
	TurnCalls  int64
	DayTokens  int64 // a day of UTC
	DayCalls   int64
	TreeTokens int64 // of a turn and all sub-agents below it
	TreeCalls  int64
}

// DefaultOutputTokens is what is reserved for an answer of a model when the
// agent does not say.
const DefaultOutputTokens = 4096

// OutputTokens is what is reserved for each answer.
func (d *Definition) OutputTokens() int { return cmp.Or(d.MaxOutputTokens, DefaultOutputTokens) }

// Chain returns the models that the agent's turns ask, in order, each once.
func (d *Definition) Chain(defaultModel string) (names []string) {
	for _, name := range append([]string{cmp.Or(d.Model, defaultModel)}, d.FallbackModels...) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Set says that any bound is set.
func (b Budget) Set() bool { return b != Budget{} }

// A Schedule starts turns of its agent.
type Schedule struct {
	Name         string // unique in the agent; default "default"
	Cron         string // five fields, or @every / @hourly and the like
	TimeZone     string // IANA name; default UTC
	Conversation string // default: "main"
	Message      string // what the agent is told; default: "Scheduled run of NAME."
	History      History
}

// History says what a run of a schedule is told of its conversation. Empty:
// HistoryLast.
type History string

// What runs of a schedule are told.
const (
	HistoryNone History = "none" // nothing
	HistoryLast History = "last" // the run of the schedule before
	HistoryAll  History = "all"  // the whole conversation, as a message is
)

// Bounds are base with the definition's overrides.
func (d *Definition) Bounds(base turnkeeper.Bounds) turnkeeper.Bounds {
	override(&base.MaxRounds, d.MaxRounds)
	override(&base.MaxDuration, d.MaxDuration)
	override(&base.MaxToolCalls, d.MaxToolCalls)
	override(&base.ToolTimeout, d.ToolTimeout)
	override(&base.Continuation, d.Continuation)
	override(&base.MaxToolResultChars, d.MaxToolResultChars)
	override(&base.Paging, d.Paging)
	override(&base.Async, d.Async)
	override(&base.AsyncTokenThreshold, d.AsyncTokenThreshold)
	override(&base.AsyncTimeout, d.AsyncTimeout)
	override(&base.OutputHandles, d.OutputHandles)
	override(&base.Summarise, d.Summarise)
	override(&base.FreshnessWindow, d.FreshnessWindow)
	override(&base.MaxSubAgents, d.MaxSubAgents)
	override(&base.MaxSubAgentDepth, d.MaxSubAgentDepth)
	override(&base.MaxTreeSubAgents, d.MaxTreeSubAgents)
	override(&base.SubAgentTimeout, d.SubAgentTimeout)
	override(&base.GiveUpAfter, d.GiveUpAfter)
	return base
}

func override[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}
