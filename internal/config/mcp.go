package config

import (
	"cmp"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

// An MCPServer is an MCP server whose tools agents can have. It is either a
// program, with Command, or an address, with URL.
type MCPServer struct {
	Name    string
	Command []string          // the program and its arguments; nil: URL
	Dir     string            // of the program; empty: the working directory
	Env     map[string]Secret // all of the program's environment; nil: none
	URL     string            // of the endpoint; empty: Command
	Headers map[string]Secret // of each request; nil: none
	OAuth   *MCPOAuth         // nil: it wants no tokens

	SessionPerLane bool          // else one for all
	ConnectTimeout time.Duration // until the server must have answered
	IdleTimeout    time.Duration // after which the session of a lane ends; 0: never
	Protocol       string        // version that is asked for; empty: the newest

	Effect       turnkeeper.Effect // of tools that say no other; empty: once
	TrustHints   bool              // the server's hints count where the settings say nothing
	Timeout      time.Duration     // of a call; 0: tool_timeout of the turn
	Background   *bool             // whether calls may go on in the background; nil: by the effect
	Tools        map[string]MCPToolSettings
	RefuseChange bool // of a definition that is not the pinned one

	AcceptDefaults    bool     // of what the server asks for; else it is declined
	AllowSampling     bool     // it may ask the agent's models; else that is declined
	MaxSamplingCalls  int      // in one call
	MaxSamplingTokens int      // of all questions and answers in one call
	Roots             []string // absolute paths; nil: it is told of none

	secretValues []string
}

// MCPToolSettings are what the settings say of one tool of a server.
type MCPToolSettings struct {
	Effect  turnkeeper.Effect // empty: the server's
	Timeout time.Duration     // 0: the server's
	ToolSwitches
}

// Defaults of an MCPServer.
const (
	defaultConnectTimeout = 30 * time.Second
	defaultIdleTimeout    = 10 * time.Minute

	defaultSamplingCalls  = 4
	defaultSamplingTokens = 8000
)

var mcpProtocols = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

func (l *loader) readMCPServers(problems *strictyaml.Problems, v *strictyaml.Node) {
	eachEntry(problems, "mcp_servers", v, func(name string, line int, v *strictyaml.Node) {
		if err := turnkeeper.CheckMCPServerName(name); err != nil {
			problems.Add(line, "mcp_servers: %v", err)
			return
		}
		r := &mcpReader{server: MCPServer{
			Name: name, ConnectTimeout: defaultConnectTimeout, IdleTimeout: defaultIdleTimeout,
			MaxSamplingCalls: defaultSamplingCalls, MaxSamplingTokens: defaultSamplingTokens,
		}}
		r.mappingReader = mappingReader{loader: l, Problems: problems, where: "mcp_servers." + name + "."}
		l.config.MCPServers[name] = r.read(v)
	})
}

// mcpReader reads one server of the config file.
type mcpReader struct {
	toolReader
	server MCPServer
}

func (r *mcpReader) read(v *strictyaml.Node) MCPServer {
	r.Fields(r.where, v, keyNames(MCPServerKeys), r.key)
	given := func(key string) bool {
		return slices.ContainsFunc(v.Fields, func(f strictyaml.Field) bool { return f.Key == key })
	}
	if v.Kind == strictyaml.Map {
		if given("command") == given("url") {
			r.Add(v.Line, "%s must have one of command and url", strings.TrimSuffix(r.where, "."))
		}
		for _, key := range []string{"dir", "env"} {
			if given(key) && given("url") {
				r.Add(v.Line, "%s%s is for a server with command; this one has url", r.where, key)
			}
		}
		for _, key := range []string{"headers", "oauth"} {
			if given(key) && given("command") {
				r.Add(v.Line, "%s%s is for a server with url; this one has command", r.where, key)
			}
		}
		if given("oauth") && r.hasHeader("Authorization") {
			r.Add(v.Line, "%sheaders.Authorization is set by oauth: take one of them out", r.where)
		}
	}
	r.server.Env = r.tool.Env
	r.server.secretValues = append(r.server.secretValues, r.tool.secretValues...)
	return r.server
}

func (r *mcpReader) key(key string, v *strictyaml.Node) {
	s := &r.server
	switch key {
	case "command":
		s.Command = r.command(key, v)
	case "dir":
		s.Dir = r.notEmpty(key, v)
	case "env":
		r.env(key, v)
	case "url":
		s.URL = r.url(key, v)
	case "headers":
		r.headers(key, v)
	case "oauth":
		r.server.OAuth = r.oauth(key, v)
	case "session":
		s.SessionPerLane = r.choice(key, v, "shared", "lane") == "lane"
	case "connect_timeout":
		s.ConnectTimeout = cmp.Or(r.timeout(key, v), defaultConnectTimeout)
	case "idle_timeout":
		s.IdleTimeout = r.timeout(key, v)
	case "protocol":
		s.Protocol = r.choice(key, v, mcpProtocols...)
	case "effect":
		s.Effect = r.effect(key, v)
	case "timeout":
		s.Timeout = r.timeout(key, v)
	case "background":
		s.Background = r.boolean(key, v)
	case "tools":
		r.tools(key, v)
	default:
		r.policy(key, v)
	}
}

// policy reads what the server is believed, and allowed.
func (r *mcpReader) policy(key string, v *strictyaml.Node) {
	s := &r.server
	switch key {
	case "trust_hints":
		s.TrustHints = *r.boolean(key, v)
	case "on_change":
		s.RefuseChange = r.choice(key, v, "report", "refuse") == "refuse"
	case "elicitation":
		s.AcceptDefaults = r.choice(key, v, "decline", "defaults") == "defaults"
	case "sampling":
		s.AllowSampling = r.choice(key, v, "decline", "allow") == "allow"
	case "max_sampling_calls":
		s.MaxSamplingCalls = r.number(key, v, 100)
	case "max_sampling_tokens":
		s.MaxSamplingTokens = r.number(key, v, 10_000_000)
	case "roots":
		s.Roots = r.roots(key, v)
	}
}

func (r *mcpReader) effect(key string, v *strictyaml.Node) turnkeeper.Effect {
	return turnkeeper.Effect(r.choice(key, v, string(turnkeeper.EffectNone), string(turnkeeper.EffectKeyed), string(turnkeeper.EffectOnce)))
}

func (r *mcpReader) url(key string, v *strictyaml.Node) string {
	text, err := v.AsText()
	if err == nil {
		text, err = endpointURL(text)
		if err != nil {
			r.Add(v.Line, "%s%s: %v", r.where, key, err)
		}
		return text
	}
	r.fault(v, key, err)
	return ""
}

// endpointURL checks an address. Other than a base URL it stays as it is
// written, and may have a query.
func endpointURL(text string) (string, error) {
	whole, query, _ := strings.Cut(text, "?")
	if _, err := baseURL(whole); err != nil {
		return "", errors.New("it must be an http or https address without user, password or #, such as https://example.org/mcp: give secrets by headers")
	}
	if strings.ContainsAny(query, "# ") {
		return "", errors.New("its query must not hold # or spaces")
	}
	return text, nil
}

func (r *mcpReader) roots(key string, v *strictyaml.Node) []string {
	paths, err := v.AsTexts()
	if err != nil {
		r.fault(v, key, err)
	}
	for i, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil || strings.TrimSpace(path) == "" {
			r.Add(v.Items[i].Line, "%s%s must hold paths of folders", r.where, key)
		}
		paths[i] = absolute
	}
	return paths
}

// ownHeaders are set by the protocol.
var ownHeaders = []string{"Accept", "Content-Type", "Content-Length", "Host", "Mcp-Session-Id", "Mcp-Protocol-Version", "Last-Event-Id", "Connection", "Transfer-Encoding"}

func (r *mcpReader) headers(key string, v *strictyaml.Node) {
	r.server.Headers = map[string]Secret{}
	eachEntry(r.Problems, r.where+key, v, func(name string, line int, v *strictyaml.Node) {
		label := key + "." + name
		switch {
		case !headerForm.MatchString(name):
			r.Add(line, "%s%s has the name %q, which is none for a header", r.where, key, name)
		case slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)):
			r.Add(line, "%s%s is set by the protocol", r.where, label)
		case v.Kind == strictyaml.Map:
			r.reference(label, v, func(value Secret) { r.header(name, value, true) })
		default:
			r.header(name, r.credential(label, "", v), secretHeader.MatchString(name))
		}
	})
}

func (r *mcpReader) header(name string, value Secret, secret bool) {
	r.server.Headers[name] = value
	if secret {
		r.server.secretValues = append(r.server.secretValues, headerSecrets(value.Reveal())...)
	}
}

// headerSecrets are the value, and what follows a scheme such as Bearer.
func headerSecrets(value string) []string {
	if _, token, found := strings.Cut(value, " "); found && strings.TrimSpace(token) != "" {
		return []string{value, strings.TrimSpace(token)}
	}
	return []string{value}
}

func (r *mcpReader) tools(key string, v *strictyaml.Node) {
	r.server.Tools = map[string]MCPToolSettings{}
	eachEntry(r.Problems, r.where+key, v, func(name string, line int, v *strictyaml.Node) {
		if err := turnkeeper.CheckMCPToolName(name); err != nil {
			r.Add(line, "%s%s: %v", r.where, key, err)
			return
		}
		var settings MCPToolSettings
		where := key + "." + name + "."
		r.Fields(r.where+where, v, keyNames(MCPToolKeys), func(one string, v *strictyaml.Node) {
			switch one {
			case "effect":
				settings.Effect = r.effect(where+one, v)
			case "timeout":
				settings.Timeout = r.timeout(where+one, v)
			default:
				r.toolSwitch(&settings.ToolSwitches, one, where+one, v)
			}
		})
		r.server.Tools[name] = settings
	})
}
