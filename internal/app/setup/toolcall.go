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
)

// AgentTools are the tools of an agent, to be run outside a turn: those that its file lists, as a worker with the
// same settings has them.
type AgentTools struct {
	cfg      *config.Config
	def      *agentdef.Definition
	registry *tools.Registry
	mcp      *MCPSource
	log      *zap.Logger
}

// OpenAgentTools makes the tools of an agent of the agents folder. The error matches turnkeeper.ErrNotFound where there
// is no such agent, and ErrAgents where its file has faults. Close them.
func OpenAgentTools(ctx context.Context, cfg *config.Config, store *operate.Store, agent string, log *zap.Logger) (*AgentTools, error) {
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
	if a.mcp, err = NewMCPSource(ctx, cfg, store, masker, log); err != nil {
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

// noAgent says why the agent has no tools here.
func noAgent(cfg *config.Config, agent string, names []string) error {
	file := filepath.Join(cfg.AgentsDir, agent+".md")
	if reading := agentdef.Read(file); reading.Definition != nil {
		return &agentsError{errors.Join(CheckAgent(file, cfg, Toolbox{Registry: &tools.Registry{}}).Faults...)}
	}
	return fmt.Errorf("%w: agent %q has no file in %s; there are %s", turnkeeper.ErrNotFound, agent, cfg.AgentsDir, cmp.Or(strings.Join(names, ", "), "none"))
}

// callable says that a tool can run outside a turn: it does not read or change results of one.
func callable(spec tools.Spec) bool { return !spec.Paging && len(spec.OutputIDs) == 0 }

// CallableTools are the names of the tools of an agent's file that can be run outside a turn, sorted. Nothing is
// started or asked.
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
			names = append(names, turnkeeper.MCPToolName(server.Name, name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Name is the agent's.
func (a *AgentTools) Name() string { return a.def.Name }

// Close ends the sessions of MCP servers.
func (a *AgentTools) Close() { a.mcp.Client.Close() }

// Spec says what a tool is. The error matches turnkeeper.ErrNotFound where the agent has no such tool that can be run
// outside a turn, and names those that it has.
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

// Missing is the secret of the settings that a tool needs and that is not there; ok: there is one.
func (a *AgentTools) Missing(name string) (secret config.MissingSecret, ok bool) {
	if secret, ok = a.cfg.Lacks("tools." + name + "."); ok {
		return secret, true
	}
	for _, server := range a.def.MCPServers {
		for _, tool := range server.Tools {
			if turnkeeper.MCPToolName(server.Name, tool) == name {
				return MissingOfMCP(a.cfg, server.Name)
			}
		}
	}
	return config.MissingSecret{}, false
}

// MissingOfMCP is the secret of the settings that an MCP server needs and that is not there; ok: there is one.
func MissingOfMCP(cfg *config.Config, server string) (secret config.MissingSecret, ok bool) {
	if secret, ok = cfg.Lacks("mcp_servers." + server + "."); ok {
		return secret, true
	}
	if wants, err := MCPWantsLogin(cfg, server); err == nil && wants {
		return cfg.Lacks("mcp_login_key")
	}
	return config.MissingSecret{}, false
}

// Check reads the arguments as a turn does. fault says in words for a model what is wrong; empty: nothing.
func (a *AgentTools) Check(name, arguments string) (_ tools.Arguments, fault string) {
	return a.registry.Check(name, arguments)
}

// A ToolEnd is what a call outside a turn ended with.
type ToolEnd struct {
	Outcome  tools.Outcome
	Shown    string   // what a model would be shown
	Cut      bool     // there is more than that
	Chars    int64    // of the whole result
	Attached []string // what came beside the text
	Took     time.Duration
}

// Call runs a tool once, with arguments of Check. It has the time that the tool has in a turn, and the result is cut as
// there, where nothing can be read on.
func (a *AgentTools) Call(ctx context.Context, name string, args tools.Arguments) ToolEnd {
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
		Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, Arguments: json.RawMessage(args.Canonical), IdempotencyKey: "call-" + rand.Text(),
	}, tools.ExecuteOptions{Timeout: timeout, Log: a.log})
	end := ToolEnd{Outcome: ending.Outcome, Took: time.Since(began)}
	r := ending.Result
	taken := outputs.Take(outputs.Raw{Text: r.Text, Bytes: r.Bytes, MediaType: r.MediaType, Incomplete: r.Incomplete, Size: r.RawBytes},
		outputs.Limits{MaxChars: cmp.Or(spec.MaxResultChars, bounds.MaxToolResultChars)})
	end.Shown, end.Chars = taken.Shown, taken.Output.Chars
	end.Cut = taken.Output.Incomplete || r.Bytes == nil && taken.Shown != taken.Output.Text
	for _, attached := range r.Attached {
		end.Attached = append(end.Attached, fmt.Sprintf("%s (%s, %d bytes)", attached.Name, cmp.Or(attached.MediaType, "application/octet-stream"), len(attached.Bytes)))
	}
	return end
}
