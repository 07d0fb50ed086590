package app

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
	"turnkeeper/internal/redact"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

// mcpServers are the MCP servers of the settings, sorted by name.
func mcpServers(cfg *config.Config) []mcp.Server {
	var servers []mcp.Server
	for _, name := range slices.Sorted(maps.Keys(cfg.MCPServers)) {
		s := cfg.MCPServers[name]
		server := mcp.Server{
			Name: name, Command: s.Command, Dir: s.Dir, URL: s.URL, Headers: map[string]string{},
			SessionPerLane: s.SessionPerLane, ConnectTimeout: s.ConnectTimeout, IdleTimeout: s.IdleTimeout, Protocol: s.Protocol,
			Effect: s.Effect, TrustHints: s.TrustHints, Timeout: s.Timeout, Tools: map[string]mcp.ToolSettings{},
			RefuseChange: s.RefuseChange, AcceptDefaults: s.AcceptDefaults, Roots: s.Roots,
		}
		for _, variable := range slices.Sorted(maps.Keys(s.Env)) {
			server.Env = append(server.Env, variable+"="+s.Env[variable].Reveal())
		}
		for header, value := range s.Headers {
			server.Headers[header] = value.Reveal()
		}
		for tool, settings := range s.Tools {
			server.Tools[tool] = mcp.ToolSettings(settings)
		}
		servers = append(servers, server)
	}
	return servers
}

// An mcpSource has the tools of MCP servers, masked.
type mcpSource struct {
	client *mcp.Client
	masker *redact.Masker
}

// newMCPSource makes what a worker has of MCP servers. Those of servers that are
// down are known by what is kept of them.
func newMCPSource(ctx context.Context, cfg *config.Config, store mcp.Store, masker *redact.Masker, log *zap.Logger) (*mcpSource, error) {
	s := &mcpSource{client: mcp.New(mcp.Config{Servers: mcpServers(cfg), Store: store, Log: log}), masker: masker}
	return s, s.client.Load(ctx)
}

// ToolsOf are the tools of MCP servers that an agent lists.
func (s *mcpSource) ToolsOf(d *agentdef.Definition) (have []tools.Tool, lacks []string) {
	for _, server := range d.MCPServers {
		if !s.client.Has(server.Name) {
			lacks = append(lacks, "mcp_servers."+server.Name)
			continue
		}
		for _, name := range server.Tools {
			have = append(have, s.client.Tool(server.Name, name))
		}
	}
	return maskTools(have, s.masker), lacks
}

// use has the servers up that the agents have tools of.
func (s *mcpSource) use(agents *agentdef.Set) {
	for d := range agents.All() {
		for _, server := range d.MCPServers {
			s.client.Use(server.Name)
		}
	}
}

// checkMCP says why an agent cannot have the tools of MCP servers that it lists.
func checkMCP(d *agentdef.Definition, cfg *config.Config, known *tools.Registry) (faults []error) {
	for _, server := range d.MCPServers {
		if _, ok := cfg.MCPServers[server.Name]; !ok {
			names := slices.Sorted(maps.Keys(cfg.MCPServers))
			have := "there are none; add it to mcp_servers in the config file"
			if len(names) > 0 {
				have = "there are " + strings.Join(names, ", ")
			}
			faults = append(faults, fmt.Errorf("mcp_servers names %q, which is no MCP server of the settings: %s", server.Name, have))
		}
		for _, tool := range server.Tools {
			name := turnkeeper.MCPToolName(server.Name, tool)
			if _, taken := known.Get(name); taken {
				faults = append(faults, fmt.Errorf("the tool %q of the MCP server %q would be called %q, as another tool is", tool, server.Name, name))
			}
		}
	}
	return faults
}

// An MCPReport is what one MCP server answered when it was asked for its tools.
type MCPReport struct {
	Server string
	Where  string // the program, or the address without what may be secret
	Err    error  // why it has no tools; nil: it has
	Tools  []turnkeeper.MCPTool
	Wanted map[string][]string // tools that agents list, each with the agents
}

// CheckMCPServers asks each of the named MCP servers, all at once, for its tools.
func CheckMCPServers(ctx context.Context, cfg *config.Config, names []string, log *zap.Logger) []MCPReport {
	var servers []mcp.Server
	for _, s := range mcpServers(cfg) {
		if slices.Contains(names, s.Name) {
			servers = append(servers, s)
		}
	}
	reports := make([]MCPReport, len(servers))
	var group sync.WaitGroup
	for i, s := range servers {
		group.Go(func() {
			found, err := mcp.Probe(ctx, s, log)
			reports[i] = MCPReport{Server: s.Name, Where: whereIs(s), Err: err, Tools: found}
		})
	}
	group.Wait()
	return reports
}

func whereIs(s mcp.Server) string {
	if len(s.Command) > 0 {
		return s.Command[0]
	}
	address, _, _ := strings.Cut(s.URL, "?")
	return address
}
