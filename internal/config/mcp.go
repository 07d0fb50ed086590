package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

// An MCPServer is an MCP server whose tools agents can use: a local program (Command) or a remote
// address (URL).
type MCPServer struct {
	Name string
	// the program and its arguments; nil: URL is set
	Command []string `yaml:"command" as:"command"`
	// working directory of the program; empty: the worker's
	Dir string `yaml:"dir" check:"not empty"`
	// complete environment of the program; nil: empty
	Env map[string]Secret `yaml:"env" names:"variable" as:"variable"`
	// address of the endpoint; empty: Command is set
	URL     string            `yaml:"url" check:"mcp url"`
	Headers map[string]Secret `yaml:"headers" names:"mcp header" as:"header"` // of each request; nil: none
	OAuth   *MCPOAuth         `yaml:"oauth"`                                  // nil: no OAuth tokens

	// false: one session for all
	SessionPerLane bool `yaml:"session" of:"shared, lane"`
	// timeout of starting a session
	ConnectTimeout time.Duration `yaml:"connect_timeout" in:"0 to 24h"`
	// ends a lane's session; 0: never
	IdleTimeout time.Duration `yaml:"idle_timeout" in:"0 to 24h"`
	// version to request; empty: the newest
	Protocol string `yaml:"protocol" of:"2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28"`

	// of tools without an effect in Tools; empty: once
	Effect turnkeeper.Effect `yaml:"effect" of:"none, keyed, once"`
	// use the server's hints for tools without an effect
	TrustHints bool `yaml:"trust_hints"`
	// of a call; 0: the turn's tool_timeout
	Timeout time.Duration `yaml:"timeout" in:"0 to 24h"`
	// whether calls may continue in the background; nil: by effect
	Background *bool `yaml:"background"`
	// as Tool.Approve, of tools without one in Tools
	Approve string                     `yaml:"approve" check:"not empty"`
	Flow                               // of tools that do not set the same in Tools
	Tools   map[string]MCPToolSettings `yaml:"tools" names:"mcp tool"`
	// refuse tools that differ from the pinned definition
	RefuseChange bool `yaml:"on_change" of:"report, refuse"`

	Elicitation string `yaml:"elicitation" of:"decline, defaults, ask"` // what becomes of a server's forms
	// let the server ask the agent's models; false: decline
	AllowSampling    bool `yaml:"sampling" of:"decline, allow"`
	MaxSamplingCalls int  `yaml:"max_sampling_calls" in:"1 to 100"` // in one call
	// of all requests and answers in one call
	MaxSamplingTokens int      `yaml:"max_sampling_tokens" in:"1 to 10000000"`
	Roots             []string `yaml:"roots" as:"roots"` // absolute paths; nil: none announced
}

// MCPToolSettings are the settings of one tool of a server.
type MCPToolSettings struct {
	Effect  turnkeeper.Effect `yaml:"effect" of:"none, keyed, once"` // empty: the server's
	Timeout time.Duration     `yaml:"timeout" in:"0 to 24h"`         // 0: the server's
	ToolSwitches
}

// The values of MCPServer.Elicitation.
const (
	elicitDecline  = "decline"
	ElicitDefaults = "defaults" // answer with the defaults of the form
	ElicitAsk      = "ask"      // ask a person
)

const defaultConnectTimeout = 30 * time.Second

// mcpServer reads one server of the config file.
func (r *fileReader) mcpServer(where, name string, v *strictyaml.Node) MCPServer {
	s := MCPServer{
		Name: name, ConnectTimeout: defaultConnectTimeout, IdleTimeout: 10 * time.Minute, Elicitation: elicitDecline,
		MaxSamplingCalls: 4, MaxSamplingTokens: 8000,
	}
	r.Decode(where, v, &s)
	if s.ConnectTimeout == 0 {
		s.ConnectTimeout = defaultConnectTimeout
	}
	if v.Kind != strictyaml.Map {
		return s
	}
	given := func(key string) bool { return v.Get(key) != nil }
	if given("command") == given("url") {
		r.Add(v.Line, "%s must have either command or url", strings.TrimSuffix(where, "."))
	}
	for _, key := range []string{"dir", "env"} {
		if given(key) && given("url") {
			r.Add(v.Line, "%s%s requires command; this server has url", where, key)
		}
	}
	for _, key := range []string{"headers", "oauth"} {
		if given(key) && given("command") {
			r.Add(v.Line, "%s%s requires url; this server has command", where, key)
		}
	}
	if s.Elicitation == ElicitAsk {
		r.refuseBackground(where, v, s)
	}
	r.refuseReads(where, v, s)
	if given("oauth") {
		r.checkOAuth(where, v.Get("oauth"), s)
	}
	return s
}

// refuseBackground refuses calls in the background of a server that may ask a person.
func (r *fileReader) refuseBackground(where string, v *strictyaml.Node, s MCPServer) {
	const format = "%sbackground: true excludes elicitation: ask: a call that may wait for a person does not run in the background"
	if s.Background != nil && *s.Background {
		r.Add(v.Get("background").Line, format, where)
	}
	for _, tool := range slices.Sorted(maps.Keys(s.Tools)) {
		if own := s.Tools[tool].Background; own != nil && *own {
			r.Add(v.Get("tools").Line, format, where+"tools."+tool+".")
		}
	}
}

// refuseReads reports each tool that sets early or cache but whose own settings give it another effect than none. The
// hints of the server cannot change that.
func (r *fileReader) refuseReads(where string, v *strictyaml.Node, s MCPServer) {
	waits := ""
	if s.Elicitation == ElicitAsk {
		waits = "elicitation: ask"
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tools)) {
		tool := s.Tools[name]
		effect := cmp.Or(tool.Effect, s.Effect)
		if effect == "" && s.TrustHints {
			effect = turnkeeper.EffectNone // unless a hint says otherwise: the switches then do nothing
		}
		r.refuseRead(where+"tools."+name+".", v.Get("tools").Get(name), tool.Reads,
			cmp.Or(effect, turnkeeper.EffectOnce), waits)
	}
}

// checkMCPURL checks an address. Unlike a base URL it may have a query, and is not changed.
func checkMCPURL(text string) string {
	whole, query, _ := strings.Cut(text, "?")
	if _, err := baseURL(whole); err != nil {
		return ": it must be an http or https address without user, password or #, such as https://example.org/mcp: set secrets in headers"
	}
	if strings.ContainsAny(query, "# ") {
		return ": its query must not hold # or spaces"
	}
	return ""
}
