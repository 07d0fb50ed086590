package config

import (
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

// An MCPServer is an MCP server whose tools agents can have. It is either a
// program, with Command, or an address, with URL.
type MCPServer struct {
	Name    string
	Command []string          `yaml:"command" as:"command"`                   // the program and its arguments; nil: URL
	Dir     string            `yaml:"dir" check:"not empty"`                  // of the program; empty: the working directory
	Env     map[string]Secret `yaml:"env" names:"variable" as:"variable"`     // all of the program's environment; nil: none
	URL     string            `yaml:"url" check:"mcp url"`                    // of the endpoint; empty: Command
	Headers map[string]Secret `yaml:"headers" names:"mcp header" as:"header"` // of each request; nil: none
	OAuth   *MCPOAuth         `yaml:"oauth"`                                  // nil: it wants no tokens

	SessionPerLane bool          `yaml:"session" of:"shared, lane"`                                                // else one for all
	ConnectTimeout time.Duration `yaml:"connect_timeout" in:"0 to 24h"`                                            // until the server must have answered
	IdleTimeout    time.Duration `yaml:"idle_timeout" in:"0 to 24h"`                                               // after which the session of a lane ends; 0: never
	Protocol       string        `yaml:"protocol" of:"2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28"` // version that is asked for; empty: the newest

	Effect       turnkeeper.Effect          `yaml:"effect" of:"none, keyed, once"` // of tools that say no other; empty: once
	TrustHints   bool                       `yaml:"trust_hints"`                   // the server's hints count where the settings say nothing
	Timeout      time.Duration              `yaml:"timeout" in:"0 to 24h"`         // of a call; 0: tool_timeout of the turn
	Background   *bool                      `yaml:"background"`                    // whether calls may go on in the background; nil: by the effect
	Tools        map[string]MCPToolSettings `yaml:"tools" names:"mcp tool"`
	RefuseChange bool                       `yaml:"on_change" of:"report, refuse"` // of a definition that is not the pinned one

	AcceptDefaults    bool     `yaml:"elicitation" of:"decline, defaults"`     // of what the server asks for; else it is declined
	AllowSampling     bool     `yaml:"sampling" of:"decline, allow"`           // it may ask the agent's models; else that is declined
	MaxSamplingCalls  int      `yaml:"max_sampling_calls" in:"1 to 100"`       // in one call
	MaxSamplingTokens int      `yaml:"max_sampling_tokens" in:"1 to 10000000"` // of all questions and answers in one call
	Roots             []string `yaml:"roots" as:"roots"`                       // absolute paths; nil: it is told of none
}

// MCPToolSettings are what the settings say of one tool of a server.
type MCPToolSettings struct {
	Effect  turnkeeper.Effect `yaml:"effect" of:"none, keyed, once"` // empty: the server's
	Timeout time.Duration     `yaml:"timeout" in:"0 to 24h"`         // 0: the server's
	ToolSwitches
}

const defaultConnectTimeout = 30 * time.Second

// mcpServer reads one server of the config file.
func (r *fileReader) mcpServer(where, name string, v *strictyaml.Node) MCPServer {
	s := MCPServer{
		Name: name, ConnectTimeout: defaultConnectTimeout, IdleTimeout: 10 * time.Minute,
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
		r.Add(v.Line, "%s must have one of command and url", strings.TrimSuffix(where, "."))
	}
	for _, key := range []string{"dir", "env"} {
		if given(key) && given("url") {
			r.Add(v.Line, "%s%s is for a server with command; this one has url", where, key)
		}
	}
	for _, key := range []string{"headers", "oauth"} {
		if given(key) && given("command") {
			r.Add(v.Line, "%s%s is for a server with url; this one has command", where, key)
		}
	}
	if given("oauth") {
		r.checkOAuth(where, v.Get("oauth"), s)
	}
	return s
}

// checkMCPURL checks an address. Other than a base URL it stays as it is
// written, and may have a query.
func checkMCPURL(text string) string {
	whole, query, _ := strings.Cut(text, "?")
	if _, err := baseURL(whole); err != nil {
		return ": it must be an http or https address without user, password or #, such as https://example.org/mcp: give secrets by headers"
	}
	if strings.ContainsAny(query, "# ") {
		return ": its query must not hold # or spaces"
	}
	return ""
}
