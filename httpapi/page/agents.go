package page

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// Agents is a list of agents.
type Agents struct {
	Listing
	Agents []views.Agent
}

func (Agents) file() string    { return "agents" }
func (Agents) title() string   { return "Agents" }
func (Agents) section() string { return agentsSection }

// Agent is one agent.
type Agent struct {
	views.WholeAgent
	ByName bool // the form asks for the person's name, because there is no token
}

func (Agent) file() string    { return "agent" }
func (p Agent) title() string { return "Agent " + p.Name }
func (Agent) section() string { return agentsSection }

// Pinned reports whether the agent has a pin of its own.
func (p Agent) Pinned() bool { return p.Level != nil && p.Level.Pin != nil && p.Level.Pin.Agent != "" }

// Levels lists the levels that can be pinned.
func (Agent) Levels() []survival.Level { return survival.Levels }

// pinTimes are the choices of how long a pin holds; "": until it is unpinned.
var pinTimes = []string{"1h", "4h", "24h", ""}

// PinTimes lists the choices of how long a pin holds.
func (Agent) PinTimes() []string { return pinTimes }

func (h *Handler) showAgents(c *request.Call) error {
	read := func(_ context.Context, p operate.Page) ([]turnkeeper.AgentRegistration, error) {
		all, err := h.access.Agents(c)
		return part(all, p), err
	}
	return showList(h, c, nil, read, passed[turnkeeper.AgentRegistration],
		func(l Listing, found []turnkeeper.AgentRegistration) Page {
			return Agents{Listing: l, Agents: views.All(found, views.OfAgent)}
		})
}

func (h *Handler) showAgent(c *request.Call) error {
	found, err := h.access.Agent(c)
	if err != nil {
		return err
	}
	return h.show(c, http.StatusOK, Agent{found, c.Caller.Token == nil})
}

// pinLevel pins the survival level of an agent. Without "for" the pin holds until it is unpinned.
func (h *Handler) pinLevel(c *request.Call) error {
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	pin := operate.Pin{Agent: c.PathValue("name"), Level: survival.Level(c.PostForm.Get("level")),
		By: c.PostForm.Get("by"), Reason: reason}
	if lasts := c.PostForm.Get("for"); lasts != "" {
		if pin.For, err = time.ParseDuration(lasts); err != nil || pin.For <= 0 {
			return request.Refuse(http.StatusUnprocessableEntity,
				"for must be a duration above 0, such as 4h, or empty")
		}
	}
	if err := h.access.PinLevel(c, pin); err != nil {
		return err
	}
	return c.GoTo(agentPath(pin.Agent) + "?done=pinned")
}

func (h *Handler) unpinLevel(c *request.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	agent := c.PathValue("name")
	if err := h.access.UnpinLevel(c, agent); err != nil {
		return err
	}
	return c.GoTo(agentPath(agent) + "?done=unpinned")
}

func agentPath(name string) string { return agentsSection + "/" + url.PathEscape(name) }
