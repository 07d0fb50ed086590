package setup

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
	"turnkeeper/outputs"
	"turnkeeper/storage/operate"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp/mcpdef"
)

// AgentTools runs the tools that an agent's file lists outside a turn, configured as in a worker with the
// same settings.
type AgentTools struct {
	cfg      *config.Config
	def      *agentdef.Definition
	registry *tools.Registry
	mcp      *MCPSource
	log      *zap.Logger
}

// OpenAgentTools opens the tools of an agent. The caller must close them. The error matches
// turnkeeper.ErrNotFound if there is no such agent, and ErrAgents if its file has faults.
func OpenAgentTools(ctx context.Context, cfg *config.Config, store *operate.Store, agent string,
	log *zap.Logger) (*AgentTools, error) {
	known, err := KnownTools(cfg)
	if err != nil {
		return nil, err
	}
	all := &Agents{}
	report := CheckAgents(cfg.AgentsDir, cfg, Toolbox{Registry: known})
	all.scripts.Store(&report.scripts)
	all.Current.Store(agentdef.NewSet(report.Agents))
	def, ok := all.Current.Load().Get(agent)
	if !ok {
		return nil, noAgent(cfg, agent, all.Names())
	}
	masker := cfg.Masker()
	registry, err := NewToolbox(all, store, cfg, masker, nil, Programs(cfg))
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(slices.Clone(def.Tools), func(name string) bool {
		spec, ok := registry.Spec(name)
		return !ok || !callable(spec)
	})
	slices.Sort(own)
	a := &AgentTools{cfg: cfg, def: def, log: log}
	if a.registry, err = registry.Subset(slices.Compact(own)); err != nil {
		return nil, err
	}
	if a.mcp, err = NewMCPSource(ctx, cfg, store, masker, nil, log); err != nil {
		return nil, err
	}
	more, _ := a.mcp.ToolsOf(def)
	for _, tool := range more {
		if err := a.registry.Register(tool); err != nil {
			a.Close()
			return nil, err
		}
	}
	return a, nil
}

// noAgent returns why the agent could not be loaded.
func noAgent(cfg *config.Config, agent string, names []string) error {
	file := filepath.Join(cfg.AgentsDir, agent+".md")
	if reading := agentdef.Read(file); reading.Definition != nil {
		return &agentsError{errors.Join(CheckAgent(file, cfg, Toolbox{Registry: &tools.Registry{}}).Faults...)}
	}
	return fmt.Errorf("%w: agent %q has no file in %s; known agents: %s", turnkeeper.ErrNotFound, agent, cfg.AgentsDir,
		cmp.Or(strings.Join(names, ", "), "none"))
}

// callable reports whether a tool can run outside a turn: it does not use the results of a turn.
func callable(spec tools.Spec) bool { return !spec.Paging && len(spec.OutputIDs) == 0 }

// CallableTools returns the sorted names of an agent's tools that can run outside a turn. It starts no
// MCP server.
func CallableTools(cfg *config.Config, agent string) []string {
	known, err := KnownTools(cfg)
	def := agentdef.Read(filepath.Join(cfg.AgentsDir, agent+".md")).Definition
	if err != nil || def == nil {
		return nil
	}
	var names []string
	for _, name := range def.Tools {
		if spec, ok := known.Spec(name); ok && callable(spec) {
			names = append(names, name)
		}
	}
	for _, server := range def.MCPServers {
		for _, name := range server.Tools {
			names = append(names, mcpdef.ToolName(server.Name, name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Name returns the agent's name.
func (a *AgentTools) Name() string { return a.def.Name }

// Close ends the sessions of MCP servers.
func (a *AgentTools) Close() { a.mcp.Client.Close() }

// Spec returns the spec of a tool. The error matches turnkeeper.ErrNotFound if the agent has no such tool
// that can run outside a turn, and lists the agent's tools.
func (a *AgentTools) Spec(name string) (tools.Spec, error) {
	if spec, ok := a.registry.Spec(name); ok {
		return spec, nil
	}
	names := a.registry.Names()
	slices.Sort(names)
	hint := ""
	if near := a.registry.Nearest(name); near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", near)
	}
	return tools.Spec{}, fmt.Errorf("%w: agent %s has no tool %q that can be called%s; it has %s",
		turnkeeper.ErrNotFound, a.def.Name, name, hint, cmp.Or(strings.Join(names, ", "), "none"))
}

// Missing returns the first missing secret that a tool needs; ok is false if there is none.
func (a *AgentTools) Missing(name string) (secret config.MissingSecret, ok bool) {
	if secret, ok = a.cfg.Lacks("tools." + name + "."); ok {
		return secret, true
	}
	for _, server := range a.def.MCPServers {
		for _, tool := range server.Tools {
			if mcpdef.ToolName(server.Name, tool) == name {
				return MissingOfMCP(a.cfg, server.Name)
			}
		}
	}
	return config.MissingSecret{}, false
}

// MissingOfMCP returns the first missing secret that an MCP server needs; ok is false if there is none.
func MissingOfMCP(cfg *config.Config, server string) (secret config.MissingSecret, ok bool) {
	if secret, ok = cfg.Lacks("mcp_servers." + server + "."); ok {
		return secret, true
	}
	if wants, err := MCPWantsLogin(cfg, server); err == nil && wants {
		return cfg.Lacks("mcp_login_key")
	}
	return config.MissingSecret{}, false
}

// Check parses and validates arguments as in a turn. fault is an error text for a model; empty: valid.
func (a *AgentTools) Check(name, arguments string) (_ tools.Arguments, fault string) {
	return a.registry.Check(name, arguments)
}

// A CallReport is what a call outside a turn came to.
type CallReport struct {
	Outcome  tools.Outcome
	Shown    string   // text shown to a model
	Cut      bool     // Shown is not the whole result
	Chars    int64    // length of the whole result in characters
	Attached []string // descriptions of attachments
	Duration time.Duration
}

// Call runs a tool once with arguments from Check. Timeout and result limits are those of a turn without
// paging.
func (a *AgentTools) Call(ctx context.Context, name string, args tools.Arguments) CallReport {
	tool, _ := a.registry.Get(name)
	spec, _ := a.registry.Spec(name)
	bounds := a.cfg.BoundsFor(a.def)
	timeout := cmp.Or(spec.Timeout, bounds.ToolTimeout)
	if !spec.Detached {
		timeout = min(timeout, bounds.MaxDuration)
	}
	began := time.Now()
	ending := tools.Execute(ctx, tool, tools.Call{
		Agent: a.def.Name, Conversation: turnkeeper.DefaultConversation, Lane: turnkeeper.Lane(a.def.Name),
		Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, Arguments: json.RawMessage(args.Canonical),
		IdempotencyKey: "call-" + rand.Text(),
	}, tools.ExecuteOptions{Timeout: timeout, Log: a.log})
	report := CallReport{Outcome: ending.Outcome, Duration: time.Since(began)}
	r := ending.Result
	taken := outputs.Take(outputs.Raw{Text: r.Text, Bytes: r.Bytes, MediaType: r.MediaType, Incomplete: r.Incomplete,
		Size: r.RawBytes},
		outputs.Limits{MaxChars: cmp.Or(spec.MaxResultChars, bounds.MaxToolResultChars)})
	report.Shown, report.Chars = taken.Shown, taken.Output.Chars
	report.Cut = taken.Output.Incomplete || r.Bytes == nil && taken.Shown != taken.Output.Text
	for _, attached := range r.Attached {
		report.Attached = append(report.Attached, fmt.Sprintf("%s (%s, %d bytes)", attached.Name,
			cmp.Or(attached.MediaType, "application/octet-stream"), len(attached.Bytes)))
	}
	return report
}
