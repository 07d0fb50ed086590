package views

import (
	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/storage/operate"
)

// A WholeAgent is a registered agent with what its file declares, its schedules and its survival level.
type WholeAgent struct {
	Agent
	Tools      []string    `json:"tools" doc:"names of the tools that its file lists"`
	MCPServers []string    `json:"mcp_servers" doc:"names of the MCP servers whose tools it may use"`
	SubAgents  []string    `json:"sub_agents" doc:"agents that it may start, those that the token covers"`
	Problem    string      `json:"problem" doc:"why its definition cannot be read; empty: it can"`
	Schedules  []Schedule  `json:"schedules"`
	Level      *AgentLevel `json:"level" doc:"null: it has no budget of a day, no rules for levels and no pin"`
}

// OfWholeAgent returns the view of an agent with its definition. It takes what is the agent's from the schedules and
// levels.
func OfWholeAgent(a turnkeeper.AgentRegistration, schedules []turnkeeper.Schedule, levels operate.Levels) WholeAgent {
	v := WholeAgent{Agent: OfAgent(a), Tools: []string{}, MCPServers: []string{}, SubAgents: []string{},
		Schedules: []Schedule{}}
	for _, s := range schedules {
		if s.Agent == a.Name {
			v.Schedules = append(v.Schedules, OfSchedule(s))
		}
	}
	for _, l := range levels.Agents {
		if l.Agent == a.Name {
			v.Level = new(OfAgentLevel(l))
		}
	}
	def, err := agentdef.ParseRecorded(a.Name, a.Definition)
	if err != nil {
		v.Problem = err.Error()
		return v
	}
	v.Tools, v.SubAgents = append(v.Tools, def.Tools...), append(v.SubAgents, def.SubAgents...)
	for _, server := range def.MCPServers {
		v.MCPServers = append(v.MCPServers, server.Name)
	}
	return v
}
