package setup

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
	"turnkeeper/policy"
)

// CheckRules returns the faults of the rules in the settings.
func CheckRules(cfg *config.Config, compiler policy.Compiler) error {
	check := func(key, rule string) error {
		if rule == "" {
			return nil
		}
		if _, err := policy.Compile(rule, compiler); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	}
	faults := []error{check("approve", cfg.Approve)}
	for _, name := range slices.Sorted(maps.Keys(cfg.Tools)) {
		faults = append(faults, check("tools."+name+".approve", cfg.Tools[name].Approve))
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.MCPServers)) {
		server := cfg.MCPServers[name]
		faults = append(faults, check("mcp_servers."+name+".approve", server.Approve))
		for _, tool := range slices.Sorted(maps.Keys(server.Tools)) {
			faults = append(faults, check("mcp_servers."+name+".tools."+tool+".approve", server.Tools[tool].Approve))
		}
	}
	return errors.Join(faults...)
}

// checkRules adds the faults of an agent's rules. Without a compiler it warns of the rules that it cannot check.
func (r *AgentsReport) checkRules(file *agentdef.Reading, compiler policy.Compiler) {
	for _, tool := range slices.Sorted(maps.Keys(file.Definition.Approve)) {
		rule := file.Definition.Approve[tool]
		if compiler == nil && rule != policy.Always && rule != policy.Never {
			r.warn(file.Path, file.Line("approve", tool),
				"approve.%s is not checked here: a worker checks the rule when it starts", tool)
			continue
		}
		if _, err := policy.Compile(rule, compiler); err != nil {
			file.Add(file.Line("approve", tool), fmt.Sprintf("approve.%s: %v", tool, err))
		}
	}
}
