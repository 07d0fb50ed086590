package mcp

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

// A Server says how to reach a server, and how far to trust it.
type Server struct {
	Name string // as mcpdef.CheckServerName wants it

	// Command is the program and its arguments of a server over standard input
	// and output. Empty: URL.
	Command []string
	Dir     string   // the program's folder; empty: the worker's
	Env     []string // NAME=VALUE: all of the program's environment

	// URL is the endpoint of a server over streamable HTTP. It may have a private
	// address. Redirects to another origin are refused.
	URL     string
	Headers map[string]string // of each request

	// OAuth says how tokens for it are had. nil: it wants none but those of Headers.
	OAuth *OAuth

	SessionPerLane bool          // one session for each lane; else one for all
	ConnectTimeout time.Duration // until the server must have answered; 0: 30 s
	IdleTimeout    time.Duration // after which a lane's session ends; 0: never
	Protocol       string        // version to ask for; empty: the newest

	Effect     turnkeeper.Effect       // of tools that say no other; empty: by TrustHints, else once
	TrustHints bool                    // readOnlyHint means none, idempotentHint means keyed
	Timeout    time.Duration           // of a call; 0: the turn's tool_timeout
	Background *bool                   // whether a call may go on in the background; nil: by the effect
	Tools      map[string]ToolSettings // by the server's names

	// RefuseChange refuses calls of a tool whose definition is not the pinned one.
	RefuseChange bool

	// AcceptDefaults answers elicitation with the defaults of the form. Else, and
	// where a field that is required has none, it is declined.
	AcceptDefaults bool

	// AllowSampling lets the server ask the models of the agent whose call runs
	// (tools.Call.Sample); else that is declined. MaxSamplingCalls bounds how often
	// in one call, 0: never; MaxSamplingTokens what all questions and answers of one
	// call take, 0: not bounded.
	AllowSampling     bool
	MaxSamplingCalls  int
	MaxSamplingTokens int

	Roots []string // absolute paths that the server is told of; nil: none
}

// ToolSettings are the operator's settings of one tool.
type ToolSettings struct {
	Effect     turnkeeper.Effect // empty: the server's
	Timeout    time.Duration     // 0: the server's
	Background *bool             // nil: the server's

	Freshness      time.Duration // as in tools.Spec
	Repeat         tools.Repeat  // as in tools.Spec
	MaxResultChars int           // as in tools.Spec
}

// A Store stores the servers' tool definitions. Implementations are safe for
// concurrent use.
type Store interface {
	// MCPTools are the tools that are kept of a server.
	MCPTools(ctx context.Context, server string) ([]mcpdef.Tool, error)
	// SeeMCPTools notes what a server lists: a tool that is new is pinned as it
	// is, and one that is kept and not among them is gone. It returns what is kept
	// then.
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
