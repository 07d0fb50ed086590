package access

import (
	"net/http"
	"slices"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/views"
)

// Agents lists the agents visible to the caller.
func (a Access) Agents(c *request.Call) ([]turnkeeper.AgentRegistration, error) {
	all, err := a.store.Agents(c.Context())
	return slices.DeleteFunc(all, func(r turnkeeper.AgentRegistration) bool { return !c.Caller.Sees(r.Name) }), err
}

// Agent reads the agent whose name is in the path, with what its file declares, its schedules and its survival level.
func (a Access) Agent(c *request.Call) (v views.WholeAgent, err error) {
	found, err := a.agent(c, c.PathValue("name"))
	if err != nil {
		return v, err
	}
	if found.Definition, err = a.store.Definition(c.Context(), found.DefinitionHash); err != nil {
		return v, err
	}
	schedules, err := a.Schedules(c)
	if err != nil {
		return v, err
	}
	levels, err := a.Levels(c)
	if err != nil {
		return v, err
	}
	v = views.OfWholeAgent(found, schedules, levels)
	v.SubAgents = slices.DeleteFunc(v.SubAgents, func(name string) bool { return !c.Caller.Sees(name) })
	return v, nil
}

// agent returns the registration of an agent that is visible to the caller, or a 404 problem.
func (a Access) agent(c *request.Call, name string) (turnkeeper.AgentRegistration, error) {
	all, err := a.Agents(c)
	if err != nil {
		return turnkeeper.AgentRegistration{}, err
	}
	i := slices.IndexFunc(all, func(r turnkeeper.AgentRegistration) bool { return r.Name == name })
	if i < 0 {
		return turnkeeper.AgentRegistration{}, request.Refuse(http.StatusNotFound, "there is no agent %.70q", name)
	}
	return all[i], nil
}
