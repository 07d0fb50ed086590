package setup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/redact"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
	"turnkeeper/tools/mcp/mcpdef"
)

// mcpServers returns the configured MCP servers, sorted by name.
func mcpServers(cfg *config.Config) []mcp.Server {
	var servers []mcp.Server
	masker := sync.OnceValue(cfg.Masker)
	for _, name := range slices.Sorted(maps.Keys(cfg.MCPServers)) {
		s := cfg.MCPServers[name]
		server := mcp.Server{
			Name: name, Command: s.Command, Dir: s.Dir, URL: s.URL, Headers: map[string]string{},
			SessionPerLane: s.SessionPerLane, ConnectTimeout: s.ConnectTimeout, IdleTimeout: s.IdleTimeout,
			Protocol: s.Protocol,
			Effect:   s.Effect, TrustHints: s.TrustHints, Timeout: s.Timeout, Background: s.Background,
			Approve: s.Approve, Flow: s.Policy(), Tools: map[string]mcp.ToolSettings{},
			RefuseChange: s.RefuseChange, AcceptDefaults: s.Elicitation == config.ElicitDefaults,
			AskForInput: s.Elicitation == config.ElicitAsk, Roots: s.Roots, OAuth: mcpOAuth(cfg, s.OAuth),
			Sampling: mcp.Sampling{Allow: s.AllowSampling, MaxCalls: s.MaxSamplingCalls,
				MaxTokens: s.MaxSamplingTokens},
			Mask: func(text string, from, to int) string { return masker().Part(text, from, to) },
		}
		for _, variable := range slices.Sorted(maps.Keys(s.Env)) {
			server.Env = append(server.Env, variable+"="+s.Env[variable].Reveal())
		}
		for header, value := range s.Headers {
			server.Headers[header] = value.Reveal()
		}
		for tool, settings := range s.Tools {
			early, cache, scope := reads(settings.Reads)
			server.Tools[tool] = mcp.ToolSettings{
				Effect: settings.Effect, Timeout: settings.Timeout, Freshness: freshness(settings.ToolSwitches),
				Repeat: tools.Repeat(settings.Repeat), MaxResultChars: settings.MaxResultChars,
				Background: settings.Background,
				Early:      early, Cache: cache, CacheScope: scope,
				Approve: settings.Approve, Flow: settings.Policy(),
			}
		}
		servers = append(servers, server)
	}
	return servers
}

// An MCPSource provides the tools of MCP servers, with masked results.
type MCPSource struct {
	Client *mcp.Client
	masker *redact.Masker
}

// NewMCPSource returns the source of the configured servers. Tools of a server that is down are known
// from the database.
func NewMCPSource(ctx context.Context, cfg *config.Config, store mcpStore, masker *redact.Masker,
	memory *membudget.Budget, log *zap.Logger) (*MCPSource, error) {
	s := &MCPSource{Client: mcp.New(mcp.Config{Servers: mcpServers(cfg), Store: store, Log: log, Access: mcpAccess(cfg,
		store), Memory: memory}), masker: masker}
	return s, s.Client.Load(ctx)
}

// ToolsOf returns the MCP tools that an agent lists, and the keys of servers that are not configured.
func (s *MCPSource) ToolsOf(d *agentdef.Definition) (have []tools.Tool, lacks []string) {
	for _, server := range d.MCPServers {
		if !s.Client.Has(server.Name) {
			lacks = append(lacks, "mcp_servers."+server.Name)
			continue
		}
		for _, name := range server.Tools {
			if tool := s.Client.Tool(server.Name, name); tool != nil {
				have = append(have, tool)
			}
		}
	}
	return maskTools(have, s.masker), lacks
}

// Use starts the servers whose tools the agents use.
func (s *MCPSource) Use(agents *agentdef.Set) {
	for d := range agents.All() {
		for _, server := range d.MCPServers {
			s.Client.Use(server.Name)
		}
	}
}

// checkMCP adds faults about MCP servers and tools that an agent lists.
func checkMCP(file *agentdef.Reading, cfg *config.Config, toolbox Toolbox) {
	for _, server := range file.Definition.MCPServers {
		line := file.Line("mcp_servers", server.Name)
		if _, ok := cfg.MCPServers[server.Name]; !ok {
			names := slices.Sorted(maps.Keys(cfg.MCPServers))
			have := "none is configured; add it to mcp_servers in the config file"
			if len(names) > 0 {
				have = "configured are " + strings.Join(names, ", ")
			}
			file.Add(line, fmt.Sprintf("mcp_servers has %q, which is not configured: %s%s", server.Name, have,
				toolbox.hint()))
		}
		for _, tool := range server.Tools {
			name := mcpdef.ToolName(server.Name, tool)
			if _, taken := toolbox.Get(name); taken {
				file.Add(line,
					fmt.Sprintf("the tool %q of the MCP server %q would have the name %q, which another tool has", tool,
						server.Name, name))
			}
		}
	}
}

// MCPEffect returns the effect of a tool according to the settings.
func MCPEffect(cfg *config.Config, t mcpdef.Tool) turnkeeper.Effect {
	for _, s := range mcpServers(cfg) {
		if s.Name == t.Server {
			return s.EffectOf(t.Name, t.Seen)
		}
	}
	return turnkeeper.EffectOnce
}

// An MCPReport is the result of asking one MCP server for its tools.
type MCPReport struct {
	Server string
	Where  string   // the program, or the address without its query
	Err    error    // nil: the server answered
	Tools  int      // number of its tools
	Lacks  []string // tools that agents list and the server lacks; sentences that begin with the agent's file
}

// CheckMCPServers asks each MCP server used by agents for its tools, in parallel. logins has the stored
// logins; nil: servers that require a login are reported as failed.
func CheckMCPServers(ctx context.Context, cfg *config.Config, agents []*agentdef.Definition,
	logins mcp.LoginStore) []MCPReport {
	used := usedMCPServers(agents)
	servers := slices.DeleteFunc(mcpServers(cfg), func(s mcp.Server) bool { return !used[s.Name] })
	reports := make([]MCPReport, len(servers))
	var group sync.WaitGroup
	for i, s := range servers {
		group.Go(func() {
			found, err := mcp.Probe(ctx, s, mcpAccess(cfg, logins), nil)
			reports[i] = MCPReport{Server: s.Name, Where: whereIs(s), Err: err, Tools: len(found)}
			if err == nil {
				reports[i].Lacks = lackingTools(s.Name, found, agents)
			}
		})
	}
	group.Wait()
	return reports
}

func usedMCPServers(agents []*agentdef.Definition) map[string]bool {
	used := map[string]bool{}
	for _, d := range agents {
		for _, server := range d.MCPServers {
			used[server.Name] = true
		}
	}
	return used
}

func lackingTools(server string, found []mcpdef.Tool, agents []*agentdef.Definition) (lacks []string) {
	var names []string
	faults := map[string]string{}
	for _, tool := range found {
		names = append(names, tool.Name)
		faults[tool.Name] = mcp.Fault(tool.Seen)
	}
	for _, d := range agents {
		for _, s := range d.MCPServers {
			for _, tool := range s.Tools {
				switch {
				case s.Name != server:
				case faults[tool] != "":
					lacks = append(lacks, fmt.Sprintf("%s: the tool %q of the MCP server %q is left out: %s", d.Path,
						tool, server, faults[tool]))
				case !slices.Contains(names, tool):
					lacks = append(lacks, fmt.Sprintf("%s: the MCP server %q has no tool %q; it has %s", d.Path, server,
						tool, strings.Join(names, ", ")))
				}
			}
		}
	}
	return lacks
}

func whereIs(s mcp.Server) string {
	if len(s.Command) > 0 {
		return s.Command[0]
	}
	address, _, _ := strings.Cut(s.URL, "?")
	return address
}
