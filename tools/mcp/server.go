package mcp

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

// A Server configures how to reach a server, and how far to trust it.
type Server struct {
	Name string // must pass mcpdef.CheckServerName

	// Command is the program and its arguments of a server over standard input and
	// output. Empty: use URL.
	Command []string
	Dir     string   // the program's folder; empty: the worker's
	Env     []string // NAME=VALUE: all of the program's environment

	// URL is the endpoint of a server over streamable HTTP. It may have a private
	// address. Redirects to another origin are refused.
	URL     string
	Headers map[string]string // of each request

	// OAuth configures how to get tokens for it. nil: it needs none but those in
	// Headers.
	OAuth *OAuth

	SessionPerLane bool          // one session per lane, instead of one for all
	ConnectTimeout time.Duration // timeout of opening a session; 0: 30 s
	IdleTimeout    time.Duration // after which a lane's session ends; 0: never
	Protocol       string        // version to request; empty: the newest

	Effect     turnkeeper.Effect       // of tools without an effect in Tools; empty: by TrustHints, else once
	TrustHints bool                    // readOnlyHint means none, idempotentHint means keyed
	Timeout    time.Duration           // of a call; 0: the turn's tool_timeout
	Background *bool                   // whether a call may continue in the background; nil: by the effect
	Approve    string                  // as in tools.Spec, of tools without one in Tools
	Flow       policy.Flow             // of tools, where Tools does not set the same
	Tools      map[string]ToolSettings // by the server's tool names

	// RefuseChange refuses calls of a tool whose definition differs from the pinned
	// one.
	RefuseChange bool

	// AcceptDefaults answers elicitation with the defaults of the form. Otherwise,
	// or if a required field has no default, it is declined.
	AcceptDefaults bool

	// AskForInput puts the forms of a server of protocol 2026-07-28 to a person: its tools
	// have AsksInput, and a call ends with a tools.InputRequest. Servers of older protocols
	// wait for the answer within the call, and are declined. Excludes AcceptDefaults.
	AskForInput bool

	Sampling Sampling

	// Mask returns a text from one byte up to another, with secrets masked, also one of which only
	// a part lies there. It is called for texts of the server that are cut. nil: there are no secrets.
	Mask func(text string, from, to int) string

	Roots []string // absolute paths to tell the server; nil: none
}

// Sampling configures requests of a server to the models of the agent whose call runs
// (tools.Call.Sample).
type Sampling struct {
	Allow     bool // otherwise such requests are declined
	MaxCalls  int  // maximum number of requests per call; 0: none
	MaxTokens int  // maximum number of tokens of all requests and answers of a call; 0: unlimited
}

// ToolSettings are the operator's settings of one tool.
type ToolSettings struct {
	Effect     turnkeeper.Effect // empty: the server's
	Timeout    time.Duration     // 0: the server's
	Background *bool             // nil: the server's

	Freshness time.Duration // as in tools.Spec
	Repeat    tools.Repeat  // as in tools.Spec
	// as in tools.Spec, if the tool turns out to have effect none
	Early          bool
	Cache          time.Duration
	CacheScope     tools.CacheScope
	Approve        string      // as in tools.Spec; empty: the server's
	Flow           policy.Flow // fields that are not set are the server's
	MaxResultChars int         // as in tools.Spec
}

// A Store stores the servers' tool definitions. Implementations are safe for
// concurrent use.
type Store interface {
	// MCPTools returns the stored tools of a server.
	MCPTools(ctx context.Context, server string) ([]mcpdef.Tool, error)
	// SeeMCPTools stores the list of a server's tools: a new tool is pinned, and a
	// stored one that is not listed is marked as gone. It returns the stored tools
	// after that.
	SeeMCPTools(ctx context.Context, server string, seen []mcpdef.Tool) ([]mcpdef.Tool, error)
}

const defaultConnectTimeout = 30 * time.Second

func (s Server) connectTimeout() time.Duration {
	if s.ConnectTimeout > 0 {
		return s.ConnectTimeout
	}
	return defaultConnectTimeout
}

// EffectOf returns the effect of the tool.
func (s Server) EffectOf(tool string, d mcpdef.Definition) turnkeeper.Effect {
	switch own := s.Tools[tool].Effect; {
	case own != "":
		return own
	case s.Effect != "":
		return s.Effect
	case s.TrustHints && d.ReadOnly:
		return turnkeeper.EffectNone
	case s.TrustHints && d.Idempotent:
		return turnkeeper.EffectKeyed
	}
	return turnkeeper.EffectOnce
}

func (s Server) timeoutOf(tool string) time.Duration {
	if own := s.Tools[tool].Timeout; own > 0 {
		return own
	}
	return s.Timeout
}
